"""JSON texts of columns, kept for the next call of the same rollout.

Every policy call sends the whole history again, so without this the columns of T turns are written
T times each. The texts that were used last are kept, up to a bound for the whole process.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final

MAX_KEPT_BYTES: Final = 64 << 20  # twice the published benchmark's 32 turns


class WireTexts:
    """Thread-safe. Holds at most `max_bytes`; what was used longest ago goes first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._texts: OrderedDict[Hashable, bytes] = OrderedDict()
        self.kept_bytes = 0

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """The text under `key`, made where it is not kept."""
        with self._lock:
            text = self._texts.get(key)
            if text is not None:
                self._texts.move_to_end(key)
                return text
        text = make()  # not under the lock: two threads may make the same text, which harms nobody
        with self._lock:
            if key not in self._texts:
                self._texts[key] = text
                self.kept_bytes += len(text)
            while self.kept_bytes > self._max_bytes:
                _, oldest = self._texts.popitem(last=False)
                self.kept_bytes -= len(oldest)
        return text

    def clear(self) -> None:
        """Keep nothing of what was kept so far."""
        with self._lock:
            self._texts.clear()
            self.kept_bytes = 0

    def begin_in_child(self) -> None:
        """Start anew in a forked process, where a lock that another thread held would stay held for ever."""
        self._lock = Lock()
        self.clear()


WIRE_TEXTS: Final = WireTexts(MAX_KEPT_BYTES)
"""The texts of this process."""

os.register_at_fork(after_in_child=WIRE_TEXTS.begin_in_child)
