"""Calls are placed in time: lanes, gaps, first chunks."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from otel_gym.viewer.index.summary_row import covered_s
from otel_gym.viewer.timeline import timeline


def _call(
    number: int, start: float | None, end: float | None, ttft: float | None = None
) -> dict[str, Any]:
    return {"number": number, "started_at": start, "completed_at": end, "ttft_ms": ttft}


def test_parallel_calls_are_in_lanes_of_their_own() -> None:
    """Calls that overlap are side by side; a lane is used again once it is free; order is by start, not by end."""
    line = timeline([_call(0, 12.0, 13.0), _call(1, 10.0, 14.0, 500.0), _call(2, 15.0, 16.0)])
    assert [(one.number, one.lane, one.beside) for one in line.calls] == [(1, 0, 0), (0, 1, 1), (2, 0, 0)]  # fmt: skip
    assert line.calls[0].first_s == 0.5
    assert (line.begin, line.length_s, line.lanes) == (10.0, 6.0, 2)
    assert [(gap.start_s, gap.end_s, gap.before) for gap in line.gaps] == [(4.0, 5.0, 2)]


def test_calls_without_times_come_last() -> None:
    """A record without times is shown all the same; one that ends before it begins has no length."""
    line = timeline([_call(0, None, None), _call(1, 5.0, 4.0), _call(2, 5.0, None)])
    assert [one.number for one in line.calls] == [1, 2, 0]
    assert line.length_s == 0.0
    assert timeline([]).calls == ()


_times = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 300)).map(lambda p: (float(p[0]), float(p[0] + p[1]))),
    max_size=40,
)  # fmt: skip


@given(_times)
def test_lanes_never_overlap_and_gaps_and_calls_cover_everything(
    times: list[tuple[float, float]],
) -> None:
    """In one lane no call begins before the one before has ended; time in calls and in gaps adds up to the whole."""
    line = timeline([_call(number, start, end) for number, (start, end) in enumerate(times)])
    assert sorted(one.number for one in line.calls) == list(range(len(times)))
    ends: dict[int, float] = {}
    for one in line.calls:
        assert one.start_s >= ends.get(one.lane, 0.0)
        ends[one.lane] = one.end_s
    outside = sum(gap.end_s - gap.start_s for gap in line.gaps)
    assert abs(covered_s(times) + outside - line.length_s) < 1e-6
