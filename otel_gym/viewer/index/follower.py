"""Keeps the index fresh while somebody looks, and sleeps when nobody does."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Final

from otel_gym.counters import count
from otel_gym.viewer.index.indexer import Index

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0
"""Shortest time between two looks at the directory, in seconds."""
REST: Final = 10.0
"""A look that takes long is followed by a rest this many times as long."""
FIRST_PAGE_S: Final = 0.5
"""How long a kept index is left alone for the first page, in seconds."""
ATTENTION_S: Final = 30.0
"""How long after a request the directory is still followed, in seconds."""


class Follower:
    """A background thread that refreshes an index; started and stopped with the viewer."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.after_refresh: list[Callable[[], object]] = []
        """Called in this thread after each refresh, to have ready what pages will ask for."""
        self._asked_at = time.monotonic()
        self._wake = threading.Event()
        self._stopping = False
        self._logged = ""
        self._thread = threading.Thread(target=self._run, name="otel-gym-viewer", daemon=True)

    def start(self) -> None:
        """Begin with a refresh of everything."""
        self._thread.start()

    def attend(self) -> None:
        """Somebody looks."""
        self._asked_at = time.monotonic()
        self._wake.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self.index.stop()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _run(self) -> None:
        if self.index.has_content():
            # The first page comes from the index as it is; looking at the files must not keep it waiting.
            self._wake.wait(FIRST_PAGE_S)
            self._pause(FIRST_PAGE_S / 2)
        while not self._stopping:
            try:
                self.index.refresh()
                for prepare in () if self._stopping else self.after_refresh:
                    prepare()
            except Exception as error:  # noqa: BLE001 - the pages show the fault, and the next look may succeed
                count("store.failures")
                if isinstance(error, sqlite3.DatabaseError):
                    self.index.distrust(error)
                problem = f"the files cannot be followed: {error!r}"
                if problem != self._logged:
                    logger.warning("In %s %s", self.index.layout.root, problem)
                self.index.problem = self._logged = problem
            self._pause(max(INTERVAL_S, self.index.progress.cost_s * REST))
            while not self._stopping and time.monotonic() - self._asked_at > ATTENTION_S:
                self._wake.clear()
                self._wake.wait()

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopping and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
