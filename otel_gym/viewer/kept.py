"""Values computed from the index and kept while it stays the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from otel_gym.viewer.index.indexer import Index


class Kept:
    """A JSON value computed from the index, kept until the index changes and it is worth computing again.

    It is kept beside the index too, so that a viewer that starts on a large run has it at once.
    """

    def __init__(self, index: Index, name: str, compute: Callable[[], Any]) -> None:
        self._index = index
        self._name = name
        self._compute = compute
        self._lock = threading.Lock()
        self._generation = -1
        self._at = self._cost_s = 0.0
        self._value: Any = None

    def get(self) -> Any:
        """The value; while the index is being made or a new value computed, the one before."""
        if self._generation == self._index.generation:
            return self._value
        # Whoever finds somebody else computing takes the value before, where there is one.
        if not self._lock.acquire(blocking=self._generation < 0):
            return self._value
        try:
            return self._renewed()
        finally:
            self._lock.release()

    def _renewed(self) -> Any:
        generation = self._index.generation
        if self._generation == generation:
            return self._value
        if self._generation < 0 and (value := self._index.kept(self._name)) is not None:
            self._value, self._generation = value, generation
            return value
        settled = not self._index.progress.running
        if settled or time.monotonic() - self._at > 10 * self._cost_s:
            began = time.monotonic()
            self._value = self._compute()
            self._at = time.monotonic()
            self._cost_s = self._at - began
            self._generation = generation
            if settled and self._cost_s > WORTH_KEEPING_S:
                self._index.keep(self._name, generation, self._value)
        return self._value


WORTH_KEEPING_S = 0.02
"""What is computed faster is not written down, in seconds."""
