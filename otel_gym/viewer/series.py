"""The run over time: figures of equal stretches, for the small multiples of the run page."""

from __future__ import annotations

from typing import Any, Final

from otel_gym.viewer.index.database import Database

BUCKETS: Final = 60
"""Most stretches that a run is divided into."""
EARLIEST_S: Final = 946_684_800
LATEST_S: Final = 4_102_444_800
"""The years 2000 to 2100, Unix seconds: one call with milliseconds for seconds would else be all that a chart shows."""
_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)


def over_time(database: Database) -> dict[str, Any]:
    """`start` (Unix seconds), `step_s` and one point a stretch, in which calls began; a stretch without calls has none of the figures. Calls that began outside of `EARLIEST_S` to `LATEST_S` are left out where there are others."""
    bounds = "SELECT min(started_at), max(started_at) FROM calls WHERE started_at BETWEEN ? AND ?"
    [(first, last)] = database.tuples(bounds, (EARLIEST_S, LATEST_S))
    if first is None:
        [(first, last)] = database.tuples(bounds, (-1e15, 1e15))
    if first is None:
        return {"start": None, "step_s": None, "points": []}
    length = max(last - first, 1e-3)
    step = next((s for s in _STEPS_S if length / s <= BUCKETS), None) or length / BUCKETS
    start = first - first % step if step >= 1 else first
    count = int((last - start) / step) + 1
    points: list[dict[str, Any]] = [{"at": start + i * step, "calls": 0} for i in range(count)]
    sums = database.rows(
        "SELECT CAST((started_at - ?) / ? AS INTEGER) AS bucket, count(*) AS calls,"
        " sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out, sum(failed) AS errors,"
        " sum(cached_tokens) AS cached_tokens,"
        " sum(CASE WHEN cached_tokens IS NOT NULL THEN tokens_in END) AS cached_of"
        " FROM calls WHERE started_at BETWEEN ? AND ? GROUP BY bucket",
        (start, step, first, last),
    )
    medians = dict(
        database.tuples(
            "SELECT bucket, avg(ttft_ms) FROM (SELECT bucket, ttft_ms,"
            " row_number() OVER (PARTITION BY bucket ORDER BY ttft_ms) AS place,"
            " count(*) OVER (PARTITION BY bucket) AS many FROM"
            " (SELECT CAST((started_at - ?) / ? AS INTEGER) AS bucket, ttft_ms FROM calls"
            " WHERE started_at BETWEEN ? AND ? AND ttft_ms IS NOT NULL))"
            " WHERE place IN ((many + 1) / 2, (many + 2) / 2) GROUP BY bucket",
            (start, step, first, last),
        )
    )
    for row in sums:
        bucket = row.pop("bucket")
        cached, of = row.pop("cached_tokens"), row.pop("cached_of")
        points[bucket].update(
            row,
            cache_share=cached / of if of else None,
            ttft_ms=medians.get(bucket),
        )
    return {"start": start, "step_s": step, "points": points}
