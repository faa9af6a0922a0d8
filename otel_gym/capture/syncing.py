"""Appending to many files at once and making them durable.

Linux AIO takes one system call to write the blocks of a whole group and to start the fdatasync of every file, and one to wait for them; the kernel runs
the syncs in parallel (`IOCB_CMD_FDSYNC`, Linux 4.18; see io_submit(2)). So a group costs two switches of the interpreter's lock instead of two a file.
All blocks are written before the first sync begins, so their data travels together. Where AIO is not available (another system, a seccomp profile), the
files are served one after the other, and parallelism comes from the number of flusher threads.
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
from typing import Final, NamedTuple, Protocol

MAX_FILES: Final = 128
"""Most files that are on their way at once."""

_NUMBERS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""System call numbers of io_setup, io_destroy, io_getevents and io_submit."""
_PWRITE: Final = 1
_FDSYNC: Final = 3
_CONTROL_BLOCK: Final = struct.Struct("<QIiHhIQQqQII")
_EVENT: Final = struct.Struct("<QQqq")
_MAX_EVENTS: Final = 2 * MAX_FILES


class Entry(NamedTuple):
    """A file that is to be made durable."""

    token: int
    """The caller's number of it, 0 or more; unique among those on their way."""
    descriptor: int
    """Open for appending."""
    block: bytes
    """What is to be appended before the sync; empty where nothing is."""


class Ended(NamedTuple):
    """A file whose sync has ended."""

    token: int
    written: int
    """How many bytes of the block were taken; less than all of them where the file system ran full."""
    error: OSError | None


class Syncer(Protocol):
    """Appends and makes durable. Belongs to one thread."""

    def submit(self, entries: Sequence[Entry]) -> None:
        """Append each entry's block, then start its fdatasync; at most `MAX_FILES` may be on their way."""

    def reap(self, least: int) -> list[Ended]:
        """At least `least` entries whose sync has ended, waiting for them; `least` are on their way."""

    def close(self) -> None:
        """Release what the kernel keeps for it."""


class SequentialSyncer:
    """One file after the other."""

    def __init__(self) -> None:
        self._ended: list[Ended] = []

    def submit(self, entries: Sequence[Entry]) -> None:
        self._ended += _one_by_one(entries)

    def reap(self, least: int) -> list[Ended]:
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        pass


class ParallelSyncer:
    """Many files at once, by Linux AIO."""

    def __init__(self) -> None:
        """Raises `OSError` where the kernel does not offer it."""
        numbers = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
        if numbers is None or sys.byteorder != "little" or sys.maxsize < 2**32:
            raise OSError(errno.ENOSYS, "no Linux AIO here")
        self._setup, self._destroy, self._getevents, self._submit = map(ctypes.c_long, numbers)
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._blocks = ctypes.create_string_buffer(_CONTROL_BLOCK.size * _MAX_EVENTS)
        base = ctypes.addressof(self._blocks)
        self._pointers = (ctypes.c_void_p * _MAX_EVENTS)(
            *(base + _CONTROL_BLOCK.size * i for i in range(_MAX_EVENTS))
        )
        self._events = ctypes.create_string_buffer(_EVENT.size * _MAX_EVENTS)
        self._ended: list[Ended] = []
        self._flying: dict[int, Entry] = {}
        self._written: dict[int, int] = {}
        """Results of the appends whose sync is on its way, by token: bytes taken, or a negative error number."""
        self._unseen = 0
        """Appends whose result was not fetched yet."""
        self._call(self._setup, ctypes.c_long(_MAX_EVENTS), ctypes.byref(self._context))

    def submit(self, entries: Sequence[Entry]) -> None:
        if (
            len(entries) == 1 and not self._flying
        ):  # one alone gains nothing from the kernel's workers
            self._ended += _one_by_one(entries)
            return
        if not entries:
            return
        appending = [entry for entry in entries if entry.block]
        # Buffered appends are done when io_submit returns (io_submit(2)), before the syncs behind them begin.
        blocks = (ctypes.c_char_p * len(appending))(*[entry.block for entry in appending])
        addresses = struct.unpack(f"<{len(appending)}Q", blocks)
        position = 0
        for entry, address in zip(appending, addresses, strict=True):
            _CONTROL_BLOCK.pack_into(
                self._blocks, position,
                2 * entry.token, 0, 0, _PWRITE, 0, entry.descriptor, address, len(entry.block), 0, 0, 0, 0,
            )  # fmt: skip
            position += _CONTROL_BLOCK.size
        for token, descriptor, _ in entries:
            _CONTROL_BLOCK.pack_into(
                self._blocks, position, 2 * token + 1, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, 0, 0
            )  # fmt: skip
            position += _CONTROL_BLOCK.size
        submitted = 0
        with contextlib.suppress(OSError):  # then none was taken, and all are served below
            submitted = self._call(
                self._submit,
                self._context,
                ctypes.c_long(len(appending) + len(entries)),
                self._pointers,
            )
        self._unseen += min(submitted, len(appending))
        syncing = entries[: max(0, submitted - len(appending))]
        self._flying.update((entry.token, entry) for entry in syncing)
        if len(syncing) < len(entries):
            self._serve_rest(appending, submitted, entries[len(syncing) :])

    def reap(self, least: int) -> list[Ended]:
        ended, self._ended = self._ended, []
        while len(ended) < least:
            self._reap(least - len(ended), ended)
        return ended

    def close(self) -> None:
        self._call(self._destroy, self._context)

    def _serve_rest(self, appending: list[Entry], submitted: int, rest: Sequence[Entry]) -> None:
        """Serve the entries whose sync the kernel did not take; it may have taken the append of some."""
        taken = {entry.token for entry in appending[:submitted]}
        if taken:
            self._reap(0, self._ended)
        for entry in rest:
            if entry.token in taken:
                self._ended.append(self._end(entry, _fdatasync(entry.descriptor)))
            else:
                self._ended += _one_by_one([entry])

    def _reap(self, least: int, ended: list[Ended]) -> None:
        """Take from the kernel what has ended: all appends, and at least `least` syncs."""
        try:
            done = self._call(
                self._getevents,
                self._context,
                ctypes.c_long(least + self._unseen),
                ctypes.c_long(_MAX_EVENTS),
                self._events,
                None,
            )
        except InterruptedError:
            return
        for data, _, result, _ in _EVENT.iter_unpack(self._events.raw[: done * _EVENT.size]):
            token = data >> 1
            if not data & 1:
                self._written[token] = result
                self._unseen -= 1
                continue
            error = OSError(-result, os.strerror(-result)) if result < 0 else None
            ended.append(self._end(self._flying.pop(token), error))

    def _end(self, entry: Entry, error: OSError | None) -> Ended:
        written = self._written.pop(entry.token) if entry.block else 0
        if written < 0:
            return Ended(entry.token, 0, OSError(-written, os.strerror(-written)))
        return Ended(entry.token, written, error)

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


def _one_by_one(entries: Sequence[Entry]) -> list[Ended]:
    """Append and sync each entry, waiting for it."""
    ended = []
    for token, descriptor, block in entries:
        written = 0
        try:
            if block:
                written = os.write(descriptor, block)
            os.fdatasync(descriptor)
        except OSError as error:
            ended.append(Ended(token, written, error))
        else:
            ended.append(Ended(token, written, None))
    return ended


def _fdatasync(descriptor: int) -> OSError | None:
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        return error
    return None
