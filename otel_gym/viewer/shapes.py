"""Marks on a time axis as SVG, written as text: a rollout has thousands of them, and nothing but numbers goes in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

TITLED: Final = 400
"""Up to so many marks each has a tooltip; more are drawn as one path."""


def track(
    call: Mapping[str, Any], gap: Mapping[str, Any] | None, axis: float, begin: float = 0.0
) -> Markup:
    """One call of the waterfall: waiting, its cached share, answering, the first chunk, a cut; and a short gap before it.

    The axis is `axis` seconds long and begins `begin` seconds after the rollout.
    """
    start, end = 100 * (call["start_s"] - begin) / axis, 100 * (call["end_s"] - begin) / axis
    width = max(end - start, 0.15)
    parts: list[str] = []
    if gap is not None:
        parts.append(gap_line(gap, axis, 9, begin))
    if call["first_s"] is None:
        parts.append(f'<rect class="gen" x="{start:.3f}%" width="{width:.3f}%" y="3" height="12"/>')
    else:
        first = 100 * (call["first_s"] - begin) / axis
        parts.append(
            f'<rect class="wait" x="{start:.3f}%" width="{width:.3f}%" y="3" height="12"/>'
        )
        if call["cache_share"]:
            cached = (first - start) * min(call["cache_share"], 1)
            parts.append(
                f'<rect class="cached" x="{start:.3f}%" width="{cached:.3f}%" y="3" height="12"/>'
            )
        parts.append(
            f'<rect class="gen" x="{first:.3f}%" width="{max(end - first, 0.1):.3f}%" y="3" height="12"/>'
            f'<line class="first" x1="{first:.3f}%" x2="{first:.3f}%" y1="1" y2="17"/>'
        )
    if call["truncated"]:
        parts.append(f'<line class="cut" x1="{end:.3f}%" x2="{end:.3f}%" y1="0" y2="18"/>')
    return _safe(parts)


def gap_line(gap: Mapping[str, Any], axis: float, y: int, begin: float = 0.0) -> Markup:
    """Time outside the model."""
    start = max(100 * (gap["start_s"] - begin) / axis, 0.0)
    end = 100 * (gap["end_s"] - begin) / axis
    return _safe([f'<line class="gapline" x1="{start:.3f}%" x2="{end:.3f}%" y1="{y}" y2="{y}"/>'])


def lanes(calls: Sequence[Mapping[str, Any]], axis: float) -> Markup:
    """All calls side by side, in a drawing 100 wide and one high for each lane."""
    boxes = [
        (
            100 * call["start_s"] / axis,
            max(100 * (call["end_s"] - call["start_s"]) / axis, 0.12),
            call.get("lane", 0),
            call,
        )
        for call in calls
    ]
    if len(boxes) <= TITLED:
        return _safe(
            f'<rect class="{"failed" if call["failed"] else "gen"}" x="{x:.3f}" width="{width:.3f}"'
            f' y="{lane + 0.1:.1f}" height="0.8"><title>#{call["number"]}</title></rect>'
            for x, width, lane, call in boxes
        )
    return _safe(
        f'<path class="{name}" d="'
        + "".join(
            f"M{x:.2f} {lane + 0.1:.1f}h{width:.2f}v.8h-{width:.2f}z"
            for x, width, lane, call in boxes
            if call["failed"] is failed
        )
        + '"/>'
        for name, failed in (("gen", False), ("failed", True))
    )


def _safe(parts: Iterable[str]) -> Markup:
    return Markup("".join(parts))
