"""The lines of one rollout, packed and plain, as one sequence of bytes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson
import zstandard

from otel_gym.capture.locks import Lock, lock, unlock
from otel_gym.capture.packed import PackFacts, read_facts
from otel_gym.capture.private_files import is_at
from otel_gym.errors import StoreError

HEAD_BYTES: Final = 4096
_BUFFER_BYTES: Final = 1 << 20
_JUNK_BYTES: Final = 16 << 20
"""Most bytes that are held of a line that does not begin like a record."""
_LOCK_TIMEOUT_S: Final = 5.0
_TRIES: Final = 100
_STALE_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One line that is not blank."""

    number: int
    """Position among the lines that are not blank, from 0."""
    offset_bytes: int
    """Where it begins: in the plain file, after the uncompressed length of the packed one where there is one."""
    length_bytes: int
    """Its length with the newline."""
    record: dict[str, Any] | None
    """The JSON object; null where the line is none."""
    reason: str | None = None
    """Why it is no record; null where it is one."""


def read_lines(records: Path, packed: Path, *, start: int = 0) -> Iterator[RecordLine]:
    """All lines that were whole when the reading began, in constant memory; `number` counts from the first one read.

    `start` is an offset that a line begins at. A missing file has no lines. Raises `StoreError` for a file that cannot be opened or is no pack of ours, else
    `OSError`.
    """
    number = 0
    with Source(records, packed) as source:
        for offset, length, line in source.scan(start):
            if length == len(line) and not line.strip():
                continue
            yield _decode(number, offset, length, line)
            number += 1


def _decode(number: int, offset: int, length: int, line: bytes) -> RecordLine:
    if length != len(line):
        return RecordLine(number, offset, length, None, "is not JSON: it does not begin like it")
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        reason = "is torn" if not line.endswith(b"\n") else f"is not JSON: {error}"
        return RecordLine(number, offset, length, None, reason)
    if not isinstance(value, dict):
        return RecordLine(number, offset, length, None, "is not a JSON object")
    return RecordLine(number, offset, length, value)


class Source:
    """The open files of one rollout. A context manager; what is appended after it was made is not seen."""

    def __init__(self, records: Path, packed: Path, *, settle: bool = True) -> None:
        """`settle` waits for an append in progress; without it the caller holds the lock."""
        self._plain, self._packed = _open_both(records, packed)
        self.facts: PackFacts | None = None
        self.plain_bytes = 0
        self._skip = 0
        try:
            if self._plain is not None:
                self.plain_bytes = (
                    _settled_size(self._plain) if settle else os.fstat(self._plain).st_size
                )
            if self._packed is not None:
                self.facts = read_facts(self._packed, packed)
                if self._plain is not None and repeats_pack(
                    self.facts, self._plain, self.plain_bytes
                ):
                    self._skip = self.facts.plain_bytes
        except BaseException:
            self.close()
            raise

    @property
    def base(self) -> int:
        """Uncompressed length of the packed part."""
        return self.facts.length_bytes if self.facts else 0

    @property
    def length_bytes(self) -> int:
        """Length of packed and plain part together."""
        return self.base + self.plain_bytes - self._skip

    @property
    def plain_base(self) -> int:
        """What is added to an offset in the plain file to make it one of the whole."""
        return self.base - self._skip

    def lines(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """(offset, line) of every line from `start`; the last may lack its newline, and of a long line that is no record only the head is given."""
        for offset, _, line in self.scan(start):
            yield offset, line

    def scan(self, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
        """(offset, length, line) of every line from `start`, as `lines`."""
        if self._packed is not None and start < self.base:
            yield from self._packed_lines(start)
        if self._plain is not None:
            yield from self._plain_lines(max(0, start - self.base))

    def chunks(self, most_bytes: int = _BUFFER_BYTES) -> Generator[bytes, None, None]:
        """All bytes, in pieces of at most `most_bytes`."""
        for stream, left in self._streams():
            while left > 0 and (piece := stream.read(min(left, most_bytes))):
                left -= len(piece)
                yield piece

    def read(self, offset: int, length: int) -> bytes:
        """The bytes at an offset; fewer where there are not so many."""
        if offset < self.base:
            for _, _, data in self._packed_lines(offset):
                return data[:length]
            return b""
        if self._plain is None:
            return b""
        return os.pread(self._plain, length, offset - self.base + self._skip)

    def close(self) -> None:
        """Close the files."""
        descriptors = self._plain, self._packed
        self._plain = self._packed = None
        _close(*descriptors)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _streams(self) -> Iterator[tuple[BinaryIO, int]]:
        if self._packed is not None:
            with open(self._packed, "rb", closefd=False) as file:
                file.seek(0)
                yield _decompressed(file), self.base
        if self._plain is not None:
            with open(self._plain, "rb", closefd=False) as file:
                file.seek(self._skip)
                yield file, self.plain_bytes - self._skip

    def _packed_lines(self, start: int) -> Iterator[tuple[int, int, bytes]]:
        """Lines of the packed part, from the frame that `start` lies in."""
        assert self._packed is not None and self.facts is not None
        at, offset = 0, 0
        for compressed, uncompressed in self.facts.frames:
            if offset + uncompressed > start:
                break
            at, offset = at + compressed, offset + uncompressed
        with open(self._packed, "rb", closefd=False) as file:
            file.seek(at)
            stream = io.BufferedReader(_decompressed(file), _BUFFER_BYTES)  # type: ignore[type-var]
            stream.read(start - offset)
            yield from _lines(stream, start, self.base)

    def _plain_lines(self, start: int) -> Iterator[tuple[int, int, bytes]]:
        assert self._plain is not None
        position = self._skip + start
        buffer = min(_BUFFER_BYTES, max(io.DEFAULT_BUFFER_SIZE, self.plain_bytes))
        with open(self._plain, "rb", buffering=buffer, closefd=False) as file:
            file.seek(position)
            yield from _lines(file, self.base + start, self.base + self.plain_bytes - self._skip)


def _lines(stream: BinaryIO, offset: int, end: int) -> Iterator[tuple[int, int, bytes]]:
    """(offset, length, line) up to offset `end`; a long line that does not begin like a record is passed over, and only its head is held."""
    while offset < end:
        line = stream.readline(min(end - offset, _JUNK_BYTES))
        length = len(line)
        if not length:
            return
        if length == _JUNK_BYTES and not line.endswith(b"\n"):
            if line[:1] == b"{":
                line += stream.readline(end - offset - length)
                length = len(line)
            else:
                while more := stream.readline(min(end - offset - length, _JUNK_BYTES)):
                    length += len(more)
                    if more.endswith(b"\n"):
                        break
        yield offset, length, line
        offset += length


def repeats_pack(facts: PackFacts, descriptor: int, size: int) -> bool:
    """Whether a plain file is the one that was packed last: a crash came between the pack and its removal."""
    if not facts.plain_bytes or size < facts.plain_bytes:
        return False
    head = os.pread(descriptor, min(HEAD_BYTES, facts.plain_bytes), 0)
    return hashlib.sha256(head).hexdigest() == facts.plain_head_sha256


def _decompressed(file: BinaryIO) -> BinaryIO:
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)


def _open_both(records: Path, packed: Path) -> tuple[int | None, int | None]:
    """The plain and the packed file as they stood at one moment, null where there is none.

    The plain one is opened first: a pack that finishes in between leaves its bytes in both, never in neither. Where more than that happened in between (packed
    and begun anew, cleared), the path names another plain file, and both are opened again.
    """
    for _ in range(_TRIES):
        plain = _open(records)
        try:
            found = _open(packed)
        except BaseException:
            _close(plain)
            raise
        if plain is None or found is None or is_at(records, plain):
            break
        _close(plain, found)
    else:
        raise StoreError(f"{records}: is replaced faster than it can be read")
    return plain, found


def _close(*descriptors: int | None) -> None:
    """Close files that were only read; some network file systems report that one was removed meanwhile."""
    for descriptor in descriptors:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _open(path: Path, tries: int = _STALE_TRIES) -> int | None:
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ESTALE and tries > 1:  # replaced from another host just now
            return _open(path, tries - 1)
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise StoreError(f"{path}: is not a regular file") from error
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{path}: is not a regular file")
    return descriptor


def _settled_size(descriptor: int) -> int:
    """Length of the file with no append in progress; appends only ever add, so what is before it stays."""
    held = lock(descriptor, _LOCK_TIMEOUT_S, shared=True)
    try:
        return os.fstat(descriptor).st_size
    finally:
        if held is Lock.HELD:
            unlock(descriptor)
