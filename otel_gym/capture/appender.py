"""An open capture file that lines are appended to.

The order of one append is: lock, check that the path still names this file, repair a torn end, one write, one fdatasync, unlock. Because the sync
happens under the lock, whatever a later writer finds is durable, and an append that fails is taken back whole.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from otel_gym.capture.fence import read_generation
from otel_gym.capture.locks import Lock, try_lock, unlock
from otel_gym.capture.private_files import set_mode
from otel_gym.capture.quick import PLAIN, PlainCalls
from otel_gym.counters import count
from otel_gym.errors import StoreUnavailable

_OPEN_FLAGS: Final = (
    os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
)


class Appender:
    """One open file. Used by one thread at a time; other processes are kept out by the lock."""

    __slots__ = (
        "_calls",
        "_encoded",
        "_end",
        "_file",
        "_held",
        "base",
        "created",
        "descriptor",
        "file_path",
        "generation",
        "path",
    )

    def __init__(self, path: str, mode: int, *, calls: PlainCalls = PLAIN) -> None:
        """Open or create `path`. Raises `OSError`, or `StoreUnavailable` where it is not a regular file."""
        self.path = path
        self._encoded = os.fsencode(path)
        self._calls = calls
        self.file_path = Path(path)
        self.base = 0
        """Added to offsets: the uncompressed length of what was packed before."""
        self.created = False
        self.generation = 0
        """Generation of the rollout when this file was first locked; see `locked_generation`."""
        self.descriptor = self._open(mode)
        found = os.fstat(self.descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(self.descriptor)
            raise StoreUnavailable(f"{path}: is not a regular file")
        self._file = (found.st_dev, found.st_ino)
        self._end = -1
        self._held = Lock.BUSY

    def _open(self, mode: int) -> int:
        while True:
            try:
                return os.open(self.path, _OPEN_FLAGS)
            except FileNotFoundError:
                pass
            try:
                descriptor = os.open(self.path, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, mode)
            except FileExistsError:
                continue
            set_mode(descriptor, mode)
            self.created = True
            return descriptor

    def try_lock(self) -> Lock | None:
        """Lock the file now. Null where the path no longer names it (cleared, packed or removed): open it anew."""
        try:
            self._held = try_lock(self.descriptor, calls=self._calls)
            if self._held is Lock.BUSY:
                return Lock.BUSY
            device, inode, size = self._calls.look(self._encoded)
        except OSError as error:
            self.unlock()
            # A network file system calls a file stale that another host has removed.
            if error.errno in (errno.ENOENT, errno.ESTALE):
                return None
            raise
        if (device, inode) != self._file:
            self.unlock()
            return None
        if size != self._end:
            self._end = -size if self._torn(size) else size
        return self._held

    def locked_generation(self, directory: str, rollout_id: str) -> int:
        """The rollout's generation, read once per open file, under its lock.

        A clear raises the generation first and then removes the file, so a file that the path still names has seen no clear since.
        """
        if self.generation == 0:
            self.generation = read_generation(directory, rollout_id) + 1
        return self.generation - 1

    @property
    def locked(self) -> bool:
        """Whether the lock is held, and not only missing."""
        return self._held is Lock.HELD

    def block_of(self, lines: Sequence[bytes]) -> tuple[bytes, list[int]]:
        """What has to be appended for `lines`, and the offset that each will have if nobody else appends before."""
        block = lines[0] if len(lines) == 1 else b"".join(lines)
        offset = self.base + abs(self._end)
        if self._end < 0:
            block = b"\n" + block
            offset += 1
            count("records.torn")
        offsets = []
        for line in lines:
            offsets.append(offset)
            offset += len(line)
        return block, offsets

    def appended(self, block: bytes) -> None:
        """The whole block was appended under the lock, by whomever."""
        self._end = abs(self._end) + len(block)

    def write(self, lines: Sequence[bytes]) -> list[int]:
        """Append whole lines with one write and return the offset of each. Not yet durable: call `sync`.

        Raises `OSError`; what was written in part is taken back, where the file is locked.
        """
        block, offsets = self.block_of(lines)
        start = abs(self._end)
        try:
            self.write_rest(block, os.write(self.descriptor, block))
        except (OSError, StoreUnavailable):
            self.take_back(start)
            raise
        if self._held is not Lock.HELD:
            moved = os.lseek(self.descriptor, 0, os.SEEK_CUR) - len(block) - start
            offsets = [offset + moved for offset in offsets]
            self._end = start + moved
        self.appended(block)
        return offsets

    def write_rest(self, block: bytes, written: int) -> None:
        """Append what is left of a block. Raises `OSError`."""
        while written < len(block):
            # Without a lock a second write could tear into another writer's line; the first one's rest is then a torn line of its own.
            if self._held is not Lock.HELD:
                raise StoreUnavailable(f"{self.path}: only part of an append was taken")
            written += os.write(self.descriptor, memoryview(block)[written:])

    def sync(self) -> None:
        """Make what was written durable. Raises `OSError`; then nobody knows what is on disk: call `take_back`."""
        os.fdatasync(self.descriptor)

    @property
    def end(self) -> int:
        """Length of the file as this writer knows it; what `take_back` returns to."""
        return abs(self._end)

    def take_back(self, end: int) -> None:
        """Cut the file to `end` after a failed append; only while locked, since nobody else has appended then."""
        self._end = -1
        if self._held is not Lock.HELD:
            return
        try:
            os.ftruncate(self.descriptor, end)
        except OSError:
            count("store.failures")  # what remains is a torn line, which the next append repairs

    def remove_if_made(self) -> None:
        """Remove the file again where this object made it and nothing was written; only while locked."""
        if self.created and self._end == 0 and self._held is Lock.HELD:
            os.unlink(self.path)

    def unlock(self) -> None:
        """Release the lock, if it is held."""
        if self._held is Lock.HELD:
            unlock(self.descriptor, self._calls)
        self._held = Lock.BUSY

    def close(self) -> None:
        """Close the file; releases the lock with it."""
        os.close(self.descriptor)

    def _torn(self, size: int) -> bool:
        return size > 0 and os.pread(self.descriptor, 1, size - 1) != b"\n"
