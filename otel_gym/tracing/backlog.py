"""What a pipeline still has to export: records in memory, places in files, and rollout records. Thread-safe."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from otel_gym.capture.written import Written
from otel_gym.counters import count
from otel_gym.tracing.scan import Gap

_MOST_GAPS: Final = 64
"""Places remembered apart for one rollout, so that memory stays bounded however several producers take turns in its file."""


class Backlog:
    """A queue bounded by count and bytes, and behind it the places of the records that did not fit."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._queue: deque[tuple[float, Written]] = deque()
        self._gaps: OrderedDict[str, list[Gap]] = OrderedDict()
        self._put_back: OrderedDict[str, list[Gap]] = OrderedDict()
        self._is_put_back_next = False
        self._rollouts: dict[str, bool] = {}
        self.bytes = 0
        """Bytes of the records in memory, counted as their lines."""

    def __len__(self) -> int:
        """Records in memory."""
        return len(self._queue)

    def offer(self, written: Written) -> bool:
        """Takes a record, or only its place where memory is full; whether it was taken."""
        length = written.length_bytes
        with self._lock:
            if written.offset_bytes == 0:
                # A file that begins anew: what was remembered of one of the same name is gone with it.
                self._gaps.pop(written.rollout_id, None)
                self._put_back.pop(written.rollout_id, None)
            if len(self._queue) < self._max_records and self.bytes + length <= self._max_bytes:
                self._queue.append((time.monotonic(), written))
                self.bytes += length
                return True
            self._defer(written.rollout_id, written.offset_bytes, written.offset_bytes + length)
        count("export.deferred")
        return False

    def first(self) -> Written | None:
        """The oldest record in memory, left where it is."""
        return self._queue[0][1] if self._queue else None

    def drop_first(self) -> None:
        """Removes what `first` gave."""
        with self._lock:
            _, written = self._queue.popleft()
            self.bytes -= written.length_bytes

    def add_gaps(self, gaps: Iterable[Gap]) -> None:
        """Adds places in files."""
        with self._lock:
            for gap in gaps:
                self._gaps.setdefault(gap.rollout_id, []).append(gap)

    def first_gap(self) -> Gap | None:
        """The place in a file that is to be read next, null where there is none; what was put back comes last."""
        with self._lock:
            is_put_back_next = self._is_put_back_next and self._put_back
            waiting = self._put_back if is_put_back_next else self._gaps or self._put_back
            return next(iter(waiting.values()))[0] if waiting else None

    def gap_reached(self, gap: Gap, position: int) -> None:
        """Notes that `gap` was read up to `position`; nothing where its file was begun anew meanwhile."""
        with self._lock:
            for waiting in (self._gaps, self._put_back):
                gaps = waiting.get(gap.rollout_id)
                if not gaps or gaps[0] is not gap:
                    continue
                if position < gap.end:
                    gaps[0] = gap._replace(start=position)
                    return
                gaps.pop(0)
                if not gaps:
                    del waiting[gap.rollout_id]
                return

    def put_off(self, gap: Gap) -> None:
        """Lets the other rollouts go before the one of `gap`, those that were put back too."""
        with self._lock:
            self._is_put_back_next = not self._is_put_back_next
            for waiting in (self._gaps, self._put_back):
                if gap.rollout_id in waiting:
                    waiting.move_to_end(gap.rollout_id)

    def put_back(self, rollout_id: str, start: int, end: int, since: float) -> None:
        """Takes a record's place again, to be read when nothing else waits; it was counted when it first passed."""
        with self._lock:
            self._is_put_back_next = False
            gaps = self._put_back.setdefault(rollout_id, [])
            if gaps and gaps[-1].end == start:
                gaps[-1] = gaps[-1]._replace(end=end)
            elif len(gaps) >= _MOST_GAPS:
                last = gaps[-1]
                gaps[-1] = last._replace(start=min(last.start, start), end=max(last.end, end))
            else:
                gaps.append(Gap(rollout_id, start, end, False, since))
            self._put_back.move_to_end(rollout_id)

    @property
    def has_gaps(self) -> bool:
        """Whether there are places in files to be read."""
        return bool(self._gaps or self._put_back)

    def add_rollouts(self, rollout_ids: Iterable[str], *, is_own: bool) -> None:
        """Adds rollouts whose record is to be read."""
        with self._lock:
            for rollout_id in rollout_ids:
                self._rollouts[rollout_id] = is_own or self._rollouts.get(rollout_id, False)

    def take_rollout(self) -> tuple[str, bool] | None:
        """One rollout whose record is to be read, and whether this process is the first to see it."""
        with self._lock:
            return self._rollouts.popitem() if self._rollouts else None

    @property
    def has_rollouts(self) -> bool:
        """Whether there are rollout records to be read."""
        return bool(self._rollouts)

    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (self._queue or self._gaps or self._put_back or self._rollouts)

    def oldest(self) -> float | None:
        """Since when the oldest record of this process waits, monotonic seconds; null where none does."""
        with self._lock:
            times = [self._queue[0][0]] if self._queue else []
            for waiting in (self._gaps, self._put_back):
                times.extend(gaps[0].since for gaps in waiting.values())
        return min(times, default=None)

    def _defer(self, rollout_id: str, start: int, end: int) -> None:
        gaps = self._gaps.setdefault(rollout_id, [])
        # The first gap may be being read; only a later one may grow.
        if len(gaps) > 1 and gaps[-1].is_own and gaps[-1].end == start:
            gaps[-1] = gaps[-1]._replace(end=end)
        elif len(gaps) >= _MOST_GAPS:
            # Records of other producers lie between; sending those again is harmless, but counting them would not be.
            gaps[-1] = gaps[-1]._replace(end=end, is_own=False)
        else:
            gaps.append(Gap(rollout_id, start, end, True, time.monotonic()))
