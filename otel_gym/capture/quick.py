"""System calls that are too short to give the interpreter's lock away for.

Every call of `os` releases the interpreter's lock, and a thread that releases it while another one computes gets it back only after the switch interval
(5 ms). Claims, file locks and a look at a path are calls of a microsecond on a local disk, so they are made with the lock held. On network and user-space
file systems, where they may take long, the plain ones are used.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
import threading
from pathlib import Path
from typing import Final

_REMOTE: Final = frozenset(
    {
        0x6969,  # NFS
        0x517B,  # SMB
        0xFE534D42,  # SMB2
        0xFF534D42,  # CIFS
        0x65735546,  # FUSE
        0x0BD00BD0,  # Lustre
        0x00C36400,  # Ceph
        0x01021997,  # 9p
        0x5346414F,  # AFS
        0x47504653,  # GPFS
        0x19830326,  # BeeGFS
        0x6A656A63,  # virtiofs under its older number
    }
)
"""Types of file systems, from statfs(2), whose calls may wait for somebody else."""

_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_STATX_WANTED: Final = 0x300  # STATX_INO | STATX_SIZE
_STATX: Final = struct.Struct("<32x Q Q 88x I I")
"""Of struct statx: inode, size, and the device's major and minor number. The same on every machine of its byte order; see statx(2)."""


class PlainCalls:
    """The calls of `os`; for file systems that may take their time."""

    local = False
    """Whether the file system waits for nobody else."""

    def exists(self, path: bytes) -> bool:
        """Whether the path leads to a file."""
        return os.access(path, os.F_OK)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write all of `data`. Raises `OSError`."""
        os.pwrite(descriptor, data, offset)

    def flock(self, descriptor: int, operation: int) -> None:
        """flock(2). Raises `OSError`, among them `BlockingIOError`."""
        fcntl.flock(descriptor, operation)

    def look(self, path: bytes) -> tuple[int, int, int]:
        """(device, inode, size in bytes) of what the path names, without following a symbolic link. Raises `OSError`, among them `FileNotFoundError`."""
        found = os.lstat(path)
        return found.st_dev, found.st_ino, found.st_size


class RemoteCalls(PlainCalls):
    """For file systems that other hosts write to."""

    def look(self, path: bytes) -> tuple[int, int, int]:
        # What a look says may come from a cache; opening asks the server.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return found.st_dev, found.st_ino, found.st_size


class QuickCalls(PlainCalls):
    """The same with the interpreter's lock held."""

    local = True

    def __init__(self) -> None:
        """Raises `AttributeError` where the C library lacks one of them."""
        library = ctypes.PyDLL(None, use_errno=True)
        self._access = library.access
        self._access.argtypes = (ctypes.c_char_p, ctypes.c_int)
        self._pwrite = library.pwrite
        self._pwrite.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64)
        self._pwrite.restype = ctypes.c_ssize_t
        self._flock = library.flock
        self._flock.argtypes = (ctypes.c_int, ctypes.c_int)
        self._statx = library.statx
        self._statx.argtypes = (
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_void_p,
        )
        self._of_thread = threading.local()

    def exists(self, path: bytes) -> bool:
        return bool(self._access(path, os.F_OK) == 0)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> None:
        if self._pwrite(descriptor, data, len(data), offset) != len(data):
            raise _last_error()

    def flock(self, descriptor: int, operation: int) -> None:
        if self._flock(descriptor, operation):
            raise _last_error()

    def look(self, path: bytes) -> tuple[int, int, int]:
        try:
            answer, address = self._of_thread.answer
        except AttributeError:
            answer = ctypes.create_string_buffer(256)
            address = ctypes.addressof(answer)
            self._of_thread.answer = answer, address
        if self._statx(_AT_FDCWD, path, _AT_SYMLINK_NOFOLLOW, _STATX_WANTED, address):
            raise _last_error()
        inode, size, major, minor = _STATX.unpack_from(answer)
        return os.makedev(major, minor), inode, size


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


PLAIN: Final = PlainCalls()
REMOTE: Final = RemoteCalls()


def calls_for(directory: Path) -> PlainCalls:
    """The calls that fit the directory's file system."""
    # The layout of struct statfs and the width of off_t are those of 64-bit Linux.
    if sys.platform != "linux" or sys.maxsize < 2**32 or sys.byteorder != "little":
        return PLAIN
    if _type_of(directory) in _REMOTE:
        return REMOTE
    try:
        return QuickCalls()
    except AttributeError:
        return PLAIN


def _type_of(directory: Path) -> int:
    """Type of the directory's file system; that of NFS where it cannot be learnt."""
    library = ctypes.CDLL(None, use_errno=True)
    answer = (ctypes.c_long * 64)()
    if library.statfs(os.fsencode(directory), ctypes.byref(answer)):
        return 0x6969
    return answer[0] & 0xFFFFFFFF
