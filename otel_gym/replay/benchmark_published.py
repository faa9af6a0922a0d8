"""What the reference implementation takes for the same turns, as published, and how many times better a run is.

The figures are of other machines than the one that runs this, so a ratio to them says less than one to the
plain baseline of the same run. The published replay gives plain lists; our way to wire JSON takes its place.
"""

from __future__ import annotations

from typing import Any, Final

_MIB: Final = 1 << 20

SHAPE: Final = {"prompt_tokens": 2048, "generated_tokens": 512, "layers": 64, "top_k": 8}
"""The parameters that the figures are of; the input is nested lists."""

_SECONDS: Final = ("capture", "snapshot", "restore", "replay")

PUBLISHED: Final[dict[str, dict[int, tuple[float, ...]]]] = {
    "published, Apple arm64": {
        1: (0.076, 0.060, 0.108, 0.048),
        8: (0.663, 0.549, 0.915, 0.511),
        32: (2.707, 2.843, 3.717, 1.949),
    },
    "rebuilt, 2-core x86": {32: (5.62, 4.87, 8.62, 4.23)},
}
"""Seconds of capture, snapshot, restore and replay, by machine and turns."""

_ARCHIVE_MIB: Final = {1: 0.99, 8: 7.91, 32: 31.62}
_PEAKS_MIB: Final = {
    1: (7.61, 8.13, 11.75, 8.13),
    8: (32.45, 41.77, 65.60, 36.60),
    32: (117.64, 165.32, 250.22, 134.23),
}
_CHECKPOINTS_MIB: Final = {32: 521.80}


def times_better(turns: int, ours: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Published / ours by source, each step and size; empty where nothing was published for `turns`.

    Ours is CPU time, because the published steps use one core and wait for nothing.
    """
    taken = ours["cpu_seconds"]
    found = {}
    for source, by_turns in PUBLISHED.items():
        if turns in by_turns:
            published = dict(zip(_SECONDS, by_turns[turns], strict=True))
            pairs = {step: (value, taken[step]) for step, value in published.items()}
            for step in ("wire", "again"):
                pairs[step] = (published["replay"], taken[step])
            found[source] = pairs
    if found:
        peaks = zip(_SECONDS, _PEAKS_MIB[turns], strict=True)
        sizes = {f"peak_{step}": (mib * _MIB, ours["peak_bytes"][step]) for step, mib in peaks}
        sizes["archive_bytes"] = (_ARCHIVE_MIB[turns] * _MIB, ours["archive_bytes"])
        if turns in _CHECKPOINTS_MIB:
            written = _CHECKPOINTS_MIB[turns] * _MIB
            sizes["checkpoint_bytes"] = (written, ours["checkpoint_bytes"])
        found["published, any machine"] = sizes
    return {
        source: {name: round(theirs / (own or 1), 2) for name, (theirs, own) in pairs.items()}
        for source, pairs in found.items()
    }
