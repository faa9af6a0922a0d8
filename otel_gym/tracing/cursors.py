"""What has reached a backend, kept beside the captures: `<directory>/.otel-gym/cursors/<destination>.jsonl`.

A journal: each line says that a range of a file was accepted, and reading it gives, per file, the set of ranges that are done. It only ever lags behind
the truth: a line is written after the backend has accepted, so what a crash loses is sent again, which is harmless. Several processes append to one
journal (a server with several workers, then a sidecar); nobody has to know of the others.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson

from otel_gym.counters import count
from otel_gym.errors import StoreError
from otel_gym.tracing.endpoint import without_secrets
from otel_gym.tracing.ranges import Ranges

_logger = logging.getLogger(__name__)

STATE_DIRECTORY: Final = ".otel-gym"
CURSORS: Final = "cursors"
PARKED: Final = "parked"
_COMPACT_ABOVE_BYTES: Final = 4 << 20


@dataclass(slots=True)
class FileCursor:
    """What is done of one file."""

    fingerprint: str
    done: Ranges = field(default_factory=Ranges)


def destination_name(url: str) -> str:
    """The journal's name for a backend: a digest, since a URL is no file name."""
    return sha256(url.rstrip("/").encode()).hexdigest()[:16]


class Cursors:
    """The journal of one directory and one backend."""

    def __init__(self, directory: Path, url: str, *, directory_mode: int = 0o700) -> None:
        self.destination = destination_name(url)
        self._state = directory / STATE_DIRECTORY
        self._path = self._state / CURSORS / f"{self.destination}.jsonl"
        self._parked = self._state / PARKED / f"{self.destination}.jsonl"
        self._mode = directory_mode
        self._shown_url = without_secrets(url)
        self._pending: dict[tuple[str, str], Ranges] = {}
        self._last_cause = ""
        self._is_torn = False

    def load(self) -> dict[str, FileCursor]:
        """What is done, by file name. A damaged line is skipped: its range is sent again."""
        found: dict[str, FileCursor] = {}
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return found
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be read: {error.strerror}") from error
        for line in data.split(b"\n"):
            if not line:
                continue
            try:
                name, mark, start, end = orjson.loads(line)
                cursor = found.get(name)
                if cursor is None or cursor.fingerprint != mark:
                    cursor = found[name] = FileCursor(mark)
                cursor.done.add(start, end)
            except (orjson.JSONDecodeError, ValueError, TypeError):
                count("export.failures")
        if len(data) > _COMPACT_ABOVE_BYTES:
            self._compact(found, len(data))
        return found

    def done(self, file_name: str, fingerprint: str, start: int, end: int) -> None:
        """Notes that [start, end) of a file was accepted; `save` writes it."""
        ranges = self._pending.get((file_name, fingerprint))
        if ranges is None:
            ranges = self._pending[file_name, fingerprint] = Ranges()
        ranges.add(start, end)

    def save(self) -> None:
        """Appends what was noted. A failure is counted and tried again with the next: the cursor then only lags."""
        if not self._pending:
            return
        lines = [
            orjson.dumps([name, mark, start, end])
            for (name, mark), ranges in self._pending.items()
            for start, end in ranges
        ]
        try:
            self._append(self._path, b"\n".join(lines) + b"\n")
        except OSError as error:
            self._warn(
                f"{self._path}: the cursor cannot be written: {error.strerror}; until it can, a restart sends again what was accepted since"
            )
            return
        self._last_cause = ""
        self._pending.clear()

    def park(self, entry: dict[str, object]) -> None:
        """Notes a span that the backend refuses for good, with its place and the reason."""
        try:
            self._append(self._parked, orjson.dumps({"endpoint": self._shown_url, **entry}) + b"\n")
        except OSError as error:
            self._warn(
                f"{self._parked}: cannot be written: {error.strerror}; put aside: {entry.get('file')} at byte {entry.get('offset_bytes')}: {entry.get('reason')}"
            )

    def _warn(self, cause: str) -> None:
        """Counts a failure, and logs it once per cause."""
        count("export.failures")
        if cause != self._last_cause:
            self._last_cause = cause
            _logger.warning("export: %s", cause)

    def _append(self, path: Path, data: bytes) -> None:
        for parent in (path.parent.parent, path.parent):
            with contextlib.suppress(FileExistsError):
                os.mkdir(parent, self._mode)
        descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, self._mode & 0o666
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if (
                os.stat(path).st_ino != os.fstat(descriptor).st_ino
            ):  # compacted between open and lock
                os.close(descriptor)
                descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            # A write that a full disk cut short leaves a torn line, which is skipped when it is read: so it must not swallow the next one.
            if os.write(descriptor, b"\n" + data if self._is_torn else data) < len(data):
                self._is_torn = True
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._is_torn = False
        finally:
            os.close(descriptor)

    def _compact(self, found: dict[str, FileCursor], size_bytes: int) -> None:
        """Rewrites the journal as one line per range, unless somebody is appending or has appended since it was read."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_size != size_bytes:
                    return
                temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
                with temporary.open("wb") as file:
                    os.fchmod(file.fileno(), self._mode & 0o666)
                    for name, cursor in found.items():
                        for start, end in cursor.done:
                            file.write(orjson.dumps([name, cursor.fingerprint, start, end]) + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, self._path)
            finally:
                os.close(descriptor)
        except OSError:
            count("export.failures")
