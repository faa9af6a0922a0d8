"""Making many files durable at once.

Linux AIO takes one system call to start the fdatasync of every file of a group and one to wait for all of them; the kernel runs them in parallel
(`IOCB_CMD_FDSYNC`, Linux 4.18; see io_submit(2)). So a group costs two calls instead of two switches of the interpreter's lock a file. Where it is not
available (another system, a seccomp profile), the files are synced one after the other, and parallelism comes from the number of flusher threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence
from typing import Final, Protocol

MAX_FILES: Final = 128
"""Most files that are synced with one call."""

_NUMBERS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""System call numbers of io_setup, io_destroy, io_getevents and io_submit."""
_FDSYNC: Final = 3
_CONTROL_BLOCK: Final = struct.Struct("<QIiHhIQQqQII")
_EVENT: Final = struct.Struct("<QQqq")


class Syncer(Protocol):
    """Makes files durable. Belongs to one thread."""

    def submit(self, files: Sequence[tuple[int, int]]) -> None:
        """Start the fdatasync of files, given as (token, descriptor); at most `MAX_FILES` may be on their way."""

    def reap(self, least: int) -> list[tuple[int, OSError | None]]:
        """(token, error or null) of at least `least` files whose sync has ended, waiting for them; `least` are on their way."""

    def close(self) -> None:
        """Release what the kernel keeps for it."""


class SequentialSyncer:
    """One fdatasync after the other."""

    def __init__(self) -> None:
        self._ended: list[tuple[int, OSError | None]] = []

    def submit(self, files: Sequence[tuple[int, int]]) -> None:
        self._ended += [(token, fdatasync(descriptor)) for token, descriptor in files]

    def reap(self, least: int) -> list[tuple[int, OSError | None]]:
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        pass


class ParallelSyncer:
    """The fdatasyncs of many files at once, by Linux AIO."""

    def __init__(self) -> None:
        """Raises `OSError` where the kernel does not offer it."""
        numbers = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
        if numbers is None or sys.byteorder != "little" or sys.maxsize < 2**32:
            raise OSError(errno.ENOSYS, "no Linux AIO here")
        self._setup, self._destroy, self._getevents, self._submit = map(ctypes.c_long, numbers)
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._blocks = ctypes.create_string_buffer(_CONTROL_BLOCK.size * MAX_FILES)
        base = ctypes.addressof(self._blocks)
        self._pointers = (ctypes.c_void_p * MAX_FILES)(
            *(base + _CONTROL_BLOCK.size * i for i in range(MAX_FILES))
        )
        self._events = ctypes.create_string_buffer(_EVENT.size * MAX_FILES)
        self._ended: list[tuple[int, OSError | None]] = []
        self._flying = 0
        self._call(self._setup, ctypes.c_long(MAX_FILES), ctypes.byref(self._context))

    def submit(self, files: Sequence[tuple[int, int]]) -> None:
        if (
            len(files) == 1 and not self._flying
        ):  # one alone gains nothing from the kernel's workers
            self._ended += [(token, fdatasync(descriptor)) for token, descriptor in files]
            return
        for i, (token, descriptor) in enumerate(files):
            _CONTROL_BLOCK.pack_into(
                self._blocks, i * _CONTROL_BLOCK.size, token, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, 0, 0
            )  # fmt: skip
        submitted = 0
        if files:
            with contextlib.suppress(OSError):  # then none was taken, and all are synced below
                submitted = self._call(
                    self._submit, self._context, ctypes.c_long(len(files)), self._pointers
                )
        self._flying += submitted
        self._ended += [(token, fdatasync(descriptor)) for token, descriptor in files[submitted:]]

    def reap(self, least: int) -> list[tuple[int, OSError | None]]:
        ended, self._ended = self._ended, []
        while len(ended) < least:
            try:
                done = self._call(
                    self._getevents,
                    self._context,
                    ctypes.c_long(least - len(ended)),
                    ctypes.c_long(MAX_FILES),
                    self._events,
                    None,
                )
            except InterruptedError:
                continue
            self._flying -= done
            for i in range(done):
                token, _, result, _ = _EVENT.unpack_from(self._events, i * _EVENT.size)
                ended.append(
                    (token, OSError(-result, os.strerror(-result)) if result < 0 else None)
                )
        return ended

    def close(self) -> None:
        self._call(self._destroy, self._context)

    def _call(self, *arguments: object) -> int:
        result = int(self._syscall(*arguments))
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


def make_syncer() -> Syncer:
    """The best that this system offers."""
    try:
        return ParallelSyncer()
    except OSError:
        return SequentialSyncer()


def parallel_sync_available() -> bool:
    """Whether `make_syncer` makes one that needs no thread a file."""
    syncer = make_syncer()
    syncer.close()
    return isinstance(syncer, ParallelSyncer)


def fdatasync(descriptor: int) -> OSError | None:
    """Make one file durable; the error, or null."""
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        return error
    return None
