"""Figures as shapes: what the templates draw as SVG. Positions are numbers; only the templates write markup."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

BAR_HEIGHT: Final = 40.0
COLUMNS: Final = 16
"""Fewest columns of a small multiple, so that a short run is not one fat bar."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart whose bars are one unit wide and `BAR_HEIGHT` high at most."""

    x: int
    y: float
    height: float
    value: float
    label: str


@dataclass(frozen=True, slots=True)
class Multiple:
    """One small chart over time."""

    key: str
    title: str
    unit: str
    total: float | None
    top: float
    bars: tuple[Bar, ...]
    columns: int


def small_multiples(series: Mapping[str, Any], totals: Mapping[str, Any]) -> list[Multiple]:
    """The charts of the run page."""
    points: Sequence[Mapping[str, Any]] = series["points"]
    charts = (
        ("calls", "Calls", "", totals["calls"], 0.0),
        ("tokens_in", "Tokens in", "", totals["tokens_in"], 0.0),
        ("tokens_out", "Tokens out", "", totals["tokens_out"], 0.0),
        ("cache_share", "Cache share", "%", totals["cache_share"], 1.0),
        ("ttft_ms", "TTFT, median", "ms", None, 0.0),
        ("errors", "Errors", "", totals["errors"], 0.0),
    )
    return [_multiple(points, *chart) for chart in charts]


def _multiple(
    points: Sequence[Mapping[str, Any]],
    key: str,
    title: str,
    unit: str,
    total: float | None,
    top: float,
) -> Multiple:
    values = [point.get(key) for point in points]
    highest = top or max((value for value in values if value), default=0.0) or 1.0
    bars = tuple(
        Bar(
            x,
            round(BAR_HEIGHT * (1 - value / highest), 2),
            round(BAR_HEIGHT * value / highest, 2),
            value,
            str(points[x]["at"]),
        )
        for x, value in enumerate(values)
        if value
    )
    return Multiple(key, title, unit, total, highest, bars, max(len(points), COLUMNS))


SECTION: Final = 25
"""Calls that share a time axis in a rollout of many; a call of a second would be invisible on an axis of an hour."""


def sections(calls: Sequence[Mapping[str, Any]], whole: bool) -> list[dict[str, Any]]:
    """Calls in order of their start, cut into stretches with an axis of their own; one stretch where these are the `whole` rollout and few."""
    size = len(calls) if whole and len(calls) <= 2 * SECTION else SECTION
    found = []
    for at in range(0, len(calls), size or 1):
        part = calls[at : at + size]
        begin = part[0]["start_s"]
        axis = max(call["end_s"] for call in part) - begin or 1.0
        found.append(
            {
                "calls": part,
                "begin": begin,
                "axis": axis,
                "ticks": [(tick / axis * 100, begin + tick) for tick in nice_ticks(axis)],
            }
        )
    return found


SHORTEST_TICK_S: Final = 0.001


def nice_ticks(length: float, wanted: int = 5) -> list[float]:
    """Round positions along an axis of `length` seconds, 0 first."""
    if length <= 0:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(length / wanted))
    step = next((m * power for m in (1, 2, 5) if length / (m * power) <= wanted), 10 * power)
    step = max(step, SHORTEST_TICK_S)
    return [round(i * step, 6) for i in range(int(length / step) + 1)]


BARS: Final = 400
"""Most bars of a chart with one bar a call; of more calls, the largest of every stretch is shown."""


def context_bars(calls: Sequence[Mapping[str, Any]], height: float = 60.0) -> dict[str, Any]:
    """Per call in file order: cached, fresh and output tokens as stacked heights, and the highest sum."""
    ordered = sorted(calls, key=lambda call: call["number"])
    stretch = -(-len(ordered) // BARS) or 1
    chosen = [
        max(ordered[at : at + stretch], key=_tokens) for at in range(0, len(ordered), stretch)
    ]
    top = max(map(_tokens, chosen), default=0) or 1
    scale = height / top
    bars = []
    for x, call in enumerate(chosen):
        whole = call["tokens_in"] or 0
        cached = min(call["cached_tokens"] or 0, whole)
        bars.append(
            {
                "x": x,
                "number": call["number"],
                "cached": round(cached * scale, 2),
                "fresh": round((whole - cached) * scale, 2),
                "out": round((call["tokens_out"] or 0) * scale, 2),
                "share": call["cache_share"],
                "call": call,
            }
        )
    return {"bars": bars, "top": top, "height": height, "stretch": stretch}


def _tokens(call: Mapping[str, Any]) -> int:
    return (call["tokens_in"] or 0) + (call["tokens_out"] or 0)
