"""Sets of byte ranges: which parts of a file are done."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class Ranges:
    """A set of half-open ranges [start, end), kept sorted and merged."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Adds [start, end); touching and overlapping ranges become one."""
        if start >= end:
            return
        starts, ends = self._starts, self._ends
        if ends and starts[-1] <= start <= ends[-1]:  # the usual case: the next record of a file
            ends[-1] = max(ends[-1], end)
            return
        low = bisect_right(ends, start - 1)
        high = bisect_right(starts, end)
        if low < high:
            start = min(start, starts[low])
            end = max(end, ends[high - 1])
        starts[low:high] = [start]
        ends[low:high] = [end]

    def missing(self, upto: int) -> list[tuple[int, int]]:
        """The ranges below `upto` that are not in the set."""
        gaps: list[tuple[int, int]] = []
        position = 0
        for start, end in self:
            if start >= upto:
                break
            if start > position:
                gaps.append((position, start))
            position = end
        if position < upto:
            gaps.append((position, upto))
        return gaps

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._ends, strict=True))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        return len(self._starts)
