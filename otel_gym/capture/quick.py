"""System calls that are too short to give the interpreter's lock away for.

Every call of `os` releases the interpreter's lock, and an event loop that releases it while a flusher thread works gets it back only after the switch
interval (5 ms). A claim is made of calls that take a microsecond on a local disk, so they are made with the lock held. On network and user-space file
systems, where they may take long, the plain ones are used.
"""

from __future__ import annotations

import ctypes
import os
import sys
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


class PlainCalls:
    """The calls of `os`; for file systems that may take their time."""

    def exists(self, path: bytes) -> bool:
        """Whether the path leads to a file."""
        return os.access(path, os.F_OK)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write all of `data`. Raises `OSError`."""
        os.pwrite(descriptor, data, offset)


class QuickCalls(PlainCalls):
    """The same with the interpreter's lock held."""

    def __init__(self) -> None:
        library = ctypes.PyDLL(None, use_errno=True)
        self._access = library.access
        self._access.argtypes = (ctypes.c_char_p, ctypes.c_int)
        self._pwrite = library.pwrite
        self._pwrite.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64)
        self._pwrite.restype = ctypes.c_ssize_t

    def exists(self, path: bytes) -> bool:
        return bool(self._access(path, os.F_OK) == 0)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> None:
        if self._pwrite(descriptor, data, len(data), offset) != len(data):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def calls_for(directory: Path) -> PlainCalls:
    """The calls that fit the directory's file system."""
    # The layout of struct statfs and the width of off_t are those of 64-bit Linux.
    if sys.platform != "linux" or sys.maxsize < 2**32 or _type_of(directory) in _REMOTE:
        return PlainCalls()
    return QuickCalls()


def _type_of(directory: Path) -> int:
    """Type of the directory's file system; that of NFS where it cannot be learnt."""
    library = ctypes.CDLL(None, use_errno=True)
    answer = (ctypes.c_long * 64)()
    if library.statfs(os.fsencode(directory), ctypes.byref(answer)):
        return 0x6969
    return answer[0] & 0xFFFFFFFF
