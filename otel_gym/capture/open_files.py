"""The capture files that a process keeps open, least recently used first to go."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import threading
import weakref
from collections import OrderedDict
from pathlib import Path

from otel_gym.capture.appender import Appender
from otel_gym.capture.layout import RECORDS, STALE, Layout
from otel_gym.capture.quick import PlainCalls, calls_for
from otel_gym.capture.source import Source
from otel_gym.counters import count
from otel_gym.errors import StoreError, StoreUnavailable

logger = logging.getLogger(__name__)


class OpenFiles:
    """A bounded set of open `Appender`s. One that is taken belongs to the taker alone until it is given back."""

    def __init__(self, layout: Layout, file_mode: int, directory_mode: int) -> None:
        self._layout = layout
        self._file_mode = file_mode
        self._directory_mode = directory_mode
        self._root = os.fspath(layout.root)
        self._calls: PlainCalls | None = None
        self._lock = threading.Lock()
        self._idle: OrderedDict[str, Appender] = OrderedDict()
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        _all.add(self)
        self._limit = 1024 if soft == resource.RLIM_INFINITY else max(16, min(1024, soft // 4))

    def take(self, rollout_id: str, *, stale: bool = False) -> Appender:
        """The rollout's file (or its stale file), opened and created as needed. Raises `OSError` or `StoreUnavailable`."""
        path = f"{self._root}/{rollout_id}{STALE if stale else RECORDS}"
        with self._lock:
            appender = self._idle.pop(path, None)
        if appender is not None:
            return appender
        try:
            return self._open(rollout_id, path, stale)
        except FileNotFoundError:
            make_directories(self._layout, self._directory_mode)
            return self._open(rollout_id, path, stale)

    def give_back(self, appender: Appender) -> None:
        """Keep an unlocked file open for the next append."""
        with self._lock:
            old = self._idle.pop(appender.path, None)
            self._idle[appender.path] = appender
            excess = self._idle.popitem(last=False)[1] if len(self._idle) > self._limit else None
        for closing in (old, excess):
            if closing is not None:
                closing.close()

    @property
    def calls(self) -> PlainCalls:
        """The system calls that fit the directory's file system, as it was when the first file was opened."""
        if self._calls is None:
            self._calls = calls_for(self._layout.root)
        return self._calls

    def names(self) -> list[str]:
        """Paths of the files that are open and not taken."""
        with self._lock:
            return list(self._idle)

    def close(self) -> None:
        """Close all files that are not taken."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
        for appender in idle:
            with contextlib.suppress(OSError):
                appender.close()

    def _open(self, rollout_id: str, path: str, stale: bool) -> Appender:
        appender = Appender(path, self._file_mode, calls=self.calls)
        packed = self._layout.packed(rollout_id)
        # Looked at after the opening: a pack that ends in between replaces the file, which then is opened anew.
        if not stale and packed.exists():
            try:
                with Source(self._layout.records(rollout_id), packed, settle=False) as source:
                    appender.base = source.plain_base
            except (OSError, StoreError) as error:
                count("store.failures")  # what comes now is not lost for what was damaged before
                logger.warning(
                    "%s: cannot be read (%s); records are written beside it", packed, error
                )
        return appender

    def _after_fork(self) -> None:
        """In a child: the locks are the parent's and stay, since only the last descriptor's end releases one."""
        self._lock = threading.Lock()
        self.close()


_all: weakref.WeakSet[OpenFiles] = weakref.WeakSet()


def _after_fork() -> None:
    """A forked child opens files of its own: through the parent's it would share the parent's locks, and nobody would be kept apart."""
    for files in list(_all):
        files._after_fork()


os.register_at_fork(after_in_child=_after_fork)


def make_directories(layout: Layout, mode: int) -> None:
    """Make the capture directory and its private ones, as far as they are missing.

    Raises `OSError`, or `StoreUnavailable` where the directory's file system is not mounted any more: what was written below its mount point then would
    be hidden by the next mount.
    """
    if layout.device is not None and not layout.root.exists():
        ancestor = next(parent for parent in layout.root.absolute().parents if parent.exists())
        if os.stat(ancestor).st_dev != layout.device:
            raise StoreUnavailable(f"{layout.root}: is gone, and its file system with it")
    layout.root.mkdir(mode=mode, parents=True, exist_ok=True)
    layout.device = os.stat(layout.root).st_dev
    for directory in (
        layout.private,
        layout.claims,
        layout.producers,
        layout.generations,
        layout.index,
    ):
        if not directory.is_dir():
            directory.mkdir(mode=mode, exist_ok=True)
            directory.chmod(mode)
    sync_directory(layout.root)


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
