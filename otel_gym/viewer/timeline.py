"""The calls of a rollout on a time axis: where each begins and ends, which ran side by side, and the gaps between."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Placed:
    """One call on the axis; times are seconds after the first start."""

    number: int
    start_s: float
    end_s: float
    first_s: float | None
    """When the first chunk came; null where there is none."""
    lane: int
    """Calls that ran at the same time are in different lanes."""
    beside: int
    """How many other calls were running when it began."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Time in which no call was running: the agent, its tools or nobody was at work."""

    start_s: float
    end_s: float
    before: int
    """Number of the call that ended it."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A whole rollout."""

    begin: float | None
    """Unix seconds of the first start."""
    length_s: float
    calls: tuple[Placed, ...]
    """In order of their start; calls without times come last, at the end of the axis."""
    gaps: tuple[Gap, ...]
    lanes: int


def timeline(calls: Sequence[Mapping[str, Any]]) -> Timeline:
    """The timeline of the rows of a rollout's calls."""
    timed = [call for call in calls if call["started_at"] is not None]
    if not timed:
        placed = tuple(Placed(call["number"], 0.0, 0.0, None, 0, 0) for call in calls)
        return Timeline(None, 0.0, placed, (), 1)
    begin = min(call["started_at"] for call in timed)
    length = max(0.0, *(_end(call) - begin for call in timed))
    found: list[Placed] = []
    gaps: list[Gap] = []
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    lanes = 0
    covered = 0.0
    for call in sorted(timed, key=lambda one: (one["started_at"], one["number"])):
        start, end = call["started_at"] - begin, _end(call) - begin
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, lanes = lanes, lanes + 1
        if found and start > covered:
            gaps.append(Gap(covered, start, call["number"]))
        covered = max(covered, end)
        first = call["ttft_ms"]
        found.append(
            Placed(
                call["number"],
                start,
                end,
                None if first is None else min(start + first / 1000, end),
                lane,
                len(busy),
            )
        )
        heapq.heappush(busy, (end, lane))
    found.extend(
        Placed(call["number"], length, length, None, 0, 0)
        for call in calls
        if call["started_at"] is None
    )
    return Timeline(begin, length, tuple(found), tuple(gaps), max(lanes, 1))


def _end(call: Mapping[str, Any]) -> float:
    """When it ended; never before it began."""
    start, end = float(call["started_at"]), call["completed_at"]
    return start if end is None else max(float(end), start)
