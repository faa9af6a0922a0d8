"""A JSONL file that rows are appended to durably, by one process at a time."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_gym.counters import count
from otel_gym.errors import StoreUnavailable, UsageProblem
from otel_gym.servers.answers import encode_json


@dataclass(slots=True)
class _Batch:
    """Rows that are written together."""

    lines: list[bytes] = field(default_factory=list)
    is_done: bool = False
    error: OSError | None = None


class Journal:
    """Appends rows; a row is on disk when `append` returns. Rows that wait together share one sync.

    Raises `UsageProblem` where the file cannot be opened, or another process has it open as a journal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._batch = _Batch()
        self._lock = asyncio.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise UsageProblem(f"{path}: cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise UsageProblem(
                f"{path}: another collection is writing it; wait for it or stop it"
            ) from None
        except OSError:
            # A file system without locks: the person keeps collections apart.
            count("locks.unsupported")
        try:
            self.torn = self._repair()
            """Whether the last row had been torn by a crash; it now is a line of its own."""
            _sync_directory(path.parent)
        except OSError as error:
            os.close(self._descriptor)
            raise UsageProblem(f"{path}: cannot be written: {error.strerror}") from None

    def clear(self) -> None:
        """Remove all rows. Raises `UsageProblem`."""
        try:
            os.ftruncate(self._descriptor, 0)
        except OSError as error:
            raise UsageProblem(f"{self.path}: cannot be written: {error.strerror}") from None

    async def append(self, row: Mapping[str, Any]) -> None:
        """Append one row. Raises `StoreUnavailable` where it could not be made durable."""
        batch = self._batch
        batch.lines.append(encode_json(row) + b"\n")
        async with self._lock:
            if not batch.is_done:
                self._batch = _Batch()
                batch.is_done = True
                try:
                    await asyncio.to_thread(self._write, b"".join(batch.lines))
                except OSError as error:
                    batch.error = error
        if batch.error is not None:
            reason = batch.error.strerror
            raise StoreUnavailable(f"{self.path}: cannot be written: {reason}") from batch.error

    def close(self) -> None:
        """Close the file and let go of it. Safe to call again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, data: bytes) -> None:
        before = os.fstat(self._descriptor).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
            os.fdatasync(self._descriptor)
        except OSError:
            # Half a row would swallow the one after it; its rollout is done again.
            os.ftruncate(self._descriptor, before)
            raise

    def _repair(self) -> bool:
        size = os.fstat(self._descriptor).st_size
        if size == 0 or os.pread(self._descriptor, 1, size - 1) == b"\n":
            return False
        os.write(self._descriptor, b"\n")
        return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
