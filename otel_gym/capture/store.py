"""`CaptureStore`: the capture directory of one run, read and written synchronously.

Reading never needs a writer's help and never disturbs one; see `otel_gym.capture.writer` for the asynchronous writing side.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_gym.capture.appender import Appender
from otel_gym.capture.fence import add_cleared, raise_generation
from otel_gym.capture.layout import PACKED, RECORDS, Layout
from otel_gym.capture.line import encode_line
from otel_gym.capture.locks import Lock, lock, unlock
from otel_gym.capture.open_files import OpenFiles, make_directories, sync_directory
from otel_gym.capture.pending import PendingCall, Quiescence, pending_calls
from otel_gym.capture.private_files import is_at, open_file
from otel_gym.capture.record import ModelCallRecord, build_model_call_record
from otel_gym.capture.source import RecordLine, Source, read_lines
from otel_gym.capture.written import Written
from otel_gym.correlation.rollout_id import checked, is_valid
from otel_gym.errors import CorruptRecordError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from otel_gym.capture.index import Entry

_LOCK_TIMEOUT_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.05


class CaptureStore:
    """The records of a run. Every method that takes a rollout id raises `InvalidRolloutId` for one that breaks the grammar."""

    def __init__(
        self, root: Path | str, *, file_mode: int = 0o600, directory_mode: int = 0o700
    ) -> None:
        """Open the directory, making it where it is missing. Raises `StoreError` where that is impossible."""
        self.root = Path(root)
        self.file_mode = file_mode
        self.directory_mode = directory_mode
        self.layout = Layout(self.root)
        try:
            if not self.root.is_dir():
                self.root.mkdir(mode=directory_mode, parents=True, exist_ok=True)
                with contextlib.suppress(OSError):  # somebody else made it, or it has no modes
                    self.root.chmod(directory_mode)
            self.layout.device = self.root.stat().st_dev
        except OSError as error:
            raise StoreError(f"{self.root}: cannot be made: {error.strerror}") from error
        self._files = OpenFiles(self.layout, file_mode, directory_mode)

    def path_for(self, rollout_id: str) -> Path:
        """The rollout's `.capture.jsonl`, whether it exists or not."""
        return self.layout.records(checked(rollout_id))

    def packed_path_for(self, rollout_id: str) -> Path:
        """The rollout's `.capture.jsonl.zst`, whether it exists or not."""
        return self.layout.packed(checked(rollout_id))

    def stale_path_for(self, rollout_id: str) -> Path:
        """The rollout's `.stale.jsonl`, whether it exists or not."""
        return self.layout.stale(checked(rollout_id))

    def incomplete_path_for(self, rollout_id: str) -> Path:
        """The rollout's `.capture.incomplete`, whether it exists or not."""
        return self.layout.incomplete(checked(rollout_id))

    # -- writing

    def record(self, rollout_id: str, exchange: Mapping[str, Any]) -> Written:
        """Append one raw record; durable when it returns. Raises `StoreUnavailable` where it cannot be made so."""
        line = encode_line(exchange)
        if not line.endswith(b"\n"):
            line += b"\n"
        checked(rollout_id)
        try:
            path, offset = self._append(rollout_id, line)
        except OSError as error:
            raise StoreUnavailable(
                f"{self.path_for(rollout_id)}: cannot be written: {error.strerror}"
            ) from error
        return Written(
            rollout_id=rollout_id,
            record=exchange,
            path=path,
            offset_bytes=offset,
            length_bytes=len(line),
        )

    def mark_incomplete(self, rollout_id: str) -> None:
        """Mark that at least one call of the rollout may be missing; durable when it returns. Raises `OSError`."""
        path = self.incomplete_path_for(rollout_id)
        try:
            descriptor = open_file(path, self.file_mode)
        except FileNotFoundError:
            make_directories(self.layout, self.directory_mode)
            descriptor = open_file(path, self.file_mode)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(self.root)

    def is_incomplete(self, rollout_id: str) -> bool:
        """Whether the rollout is marked."""
        return os.path.lexists(self.incomplete_path_for(rollout_id))

    def clear(self, rollout_id: str) -> None:
        """Remove the rollout's records and marker, and raise its generation: what an earlier attempt still writes goes to the stale file.

        Durable when it returns. Raises `StoreError` or `OSError`.
        """
        checked(rollout_id)
        make_directories(self.layout, self.directory_mode)
        raise_generation(self.layout.generations, rollout_id, self.file_mode)
        sync_directory(self.layout.generations)
        removed = self._remove_records(rollout_id)
        for path in (
            self.layout.incomplete(rollout_id),
            self.layout.index / f"{rollout_id}.json",
        ):
            path.unlink(missing_ok=True)
        if removed:
            add_cleared(self.layout.generations, rollout_id, self.file_mode, removed)
        sync_directory(self.root)

    def close(self) -> None:
        """Close the files that `record` keeps open; the store can still be used."""
        self._files.close()

    # -- reading

    def read(self, rollout_id: str, *, strict: bool = True) -> list[dict[str, Any]]:
        """All raw records; `[]` where there is no file.

        Raises `CorruptRecordError` for the first line that is no record; with `strict=False` such lines are left out (`read_available` counts them,
        `iter_lines` says where they are).
        """
        records = []
        for line in self.iter_lines(rollout_id):
            if line.record is not None:
                records.append(line.record)
            elif strict:
                raise self._corrupt(rollout_id, line)
        return records

    def read_available(self, rollout_id: str) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """((line number, raw record) of every readable line, number of unreadable ones); the line number counts both."""
        records = []
        invalid = 0
        for line in self.iter_lines(rollout_id):
            if line.record is None:
                invalid += 1
            else:
                records.append((line.number, line.record))
        return records, invalid

    def iter_records(
        self, rollout_id: str, *, start: int = 0, strict: bool = False
    ) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """(offset_bytes, length_bytes, raw record) of every readable line from offset `start`, in constant memory."""
        for line in self.iter_lines(rollout_id, start=start):
            if line.record is not None:
                yield line.offset_bytes, line.length_bytes, line.record
            elif strict:
                raise self._corrupt(rollout_id, line)

    def iter_lines(self, rollout_id: str, *, start: int = 0) -> Iterator[RecordLine]:
        """Every line that is not blank, damaged ones with their reason, in constant memory."""
        return read_lines(self.path_for(rollout_id), self.layout.packed(rollout_id), start=start)

    def iter_stale(self, rollout_id: str) -> Iterator[RecordLine]:
        """Every line of the rollout's stale file."""
        path = self.stale_path_for(rollout_id)
        return read_lines(path, path.with_name(path.name + ".zst"))

    def find(self, rollout_id: str, model_call_id: str) -> Entry | None:
        """Where the record of a call stands, by the index beside the files; null where there is none."""
        from otel_gym.capture.index import find

        return find(self, rollout_id, model_call_id)

    def rollouts(self) -> Iterator[str]:
        """The ids of all rollouts that have records, packed ones included, in order."""
        ids = set()
        with os.scandir(self.root) as entries:
            for entry in entries:
                for suffix in (RECORDS, PACKED):
                    rollout_id = entry.name.removesuffix(suffix)
                    if rollout_id != entry.name and is_valid(rollout_id):
                        ids.add(rollout_id)
        return iter(sorted(ids))

    def pending(self, rollout_id: str | None = None) -> list[PendingCall]:
        """Calls that were begun and are not recorded: of one rollout or of all, oldest first."""
        if rollout_id is not None:
            checked(rollout_id)
        return pending_calls(self.layout, rollout_id)

    def await_quiescence(self, rollout_id: str, timeout: float) -> Quiescence:
        """Wait until no living producer has a call of the rollout's current attempt outstanding, at most `timeout` seconds.

        Calls of dead producers are not waited for: they are in the result. Blocks the calling thread.
        """
        deadline = time.monotonic() + timeout
        pause = _FIRST_PAUSE_S
        while True:
            calls = tuple(call for call in self.pending(rollout_id) if not call.stale)
            if not any(call.alive and not call.lost for call in calls):
                return Quiescence(True, calls)
            left = deadline - time.monotonic()
            if left <= 0:
                return Quiescence(False, calls)
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)

    # -- inside

    def _append(self, rollout_id: str, line: bytes) -> tuple[Path, int]:
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        pause = 0.0002
        while True:
            appender = self._files.take(rollout_id)
            try:
                outcome = appender.try_lock()
                if outcome in (Lock.HELD, Lock.UNSUPPORTED):
                    offset = self._write(appender, line)
                    self._files.give_back(appender)
                    return appender.file_path, offset
            except BaseException:
                appender.close()
                raise
            if outcome is None:
                appender.close()
                continue
            self._files.give_back(appender)
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"{appender.path}: locked by another process for {_LOCK_TIMEOUT_S:g} s"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 0.005)

    def _write(self, appender: Appender, line: bytes) -> int:
        try:
            before = appender.end
            [offset] = appender.write([line])
            try:
                appender.sync()
                if appender.created:
                    sync_directory(self.root)
                    appender.created = False
            except OSError:
                appender.take_back(before)
                raise
        finally:
            appender.unlock()
        return offset

    def _remove_records(self, rollout_id: str) -> int:
        """Remove both forms of the records under the plain one's lock, so that no append is cut in half; how many lines they held.

        The packed one goes first: whoever opens the plain one anew counts its offsets from what is packed before it.
        """
        path, packed = self.path_for(rollout_id), self.packed_path_for(rollout_id)
        while (descriptor := self._open_for_removal(path, packed)) is not None:
            held = Lock.BUSY
            try:
                held = lock(descriptor, _LOCK_TIMEOUT_S)
                if held is Lock.BUSY:
                    raise StoreUnavailable(
                        f"{path}: locked by another process for {_LOCK_TIMEOUT_S:g} s"
                    )
                with contextlib.suppress(FileNotFoundError):
                    if is_at(path, descriptor):
                        removed = self._count_lines(path, packed)
                        packed.unlink(missing_ok=True)
                        os.unlink(path)
                        return removed
            finally:
                if held is Lock.HELD:
                    unlock(descriptor)
                os.close(descriptor)
        return 0

    def _open_for_removal(self, path: Path, packed: Path) -> int | None:
        """The plain file, made where only a packed one is there; null where there is neither. What is no regular file is removed without looking into it."""
        for one in (path, packed):
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISREG(os.lstat(one).st_mode):
                    one.unlink()
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return open_file(path, self.file_mode) if packed.exists() else None

    def _count_lines(self, path: Path, packed: Path) -> int:
        """Lines that are not blank; those of a packed file that cannot be read count as none."""
        with contextlib.suppress(StoreError), Source(path, packed, settle=False) as source:
            return sum(1 for _, line in source.lines() if line.strip())
        return 0

    def _corrupt(self, rollout_id: str, line: RecordLine) -> CorruptRecordError:
        return CorruptRecordError(
            self.path_for(rollout_id), line.number, line.offset_bytes, line.reason or ""
        )


def read_model_call_records(store: CaptureStore, rollout_id: str) -> list[ModelCallRecord]:
    """The rollout's calls, derived from its raw records, in file order. Raises `CorruptRecordError` for a damaged line."""
    return [
        build_model_call_record(raw, call_index)
        for call_index, raw in enumerate(store.read(rollout_id, strict=True))
    ]


def aggregate_model_call_metrics(store: CaptureStore, rollout_id: str) -> dict[str, Any]:
    """Sums over the rollout's calls. Raises `CorruptRecordError` for a damaged line."""
    from otel_gym.capture.metrics import aggregate_model_call_records

    return aggregate_model_call_records(read_model_call_records(store, rollout_id))
