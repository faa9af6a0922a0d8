"""What the index says of a whole rollout."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from otel_gym.correlation.rollout_id import indices
from otel_gym.correlation.trace_ids import trace_id
from otel_gym.tracing.spans import unix_ns
from otel_gym.viewer.index.call_row import real, text, whole

_ATTEMPT: Final = re.compile(r"(?P<base>.+)-a(?P<attempt>[1-9]\d{0,8})", re.ASCII)


def name_columns(rollout_id: str, run_id: str) -> dict[str, Any]:
    """What follows from the id alone. `base` is the id without its attempt; rollouts with the same `task` belong together."""
    match = _ATTEMPT.fullmatch(rollout_id)
    base = match["base"] if match else rollout_id
    attempt = int(match["attempt"]) if match else 0
    numbers = indices(rollout_id)
    return {
        "trace_id": trace_id(run_id, rollout_id),
        "base": base,
        "task": str(numbers[0]) if numbers else base,
        "task_order": whole(numbers[0]) if numbers else None,
        "rollout_order": (whole(numbers[1]) or 0) if numbers else 0,
        "attempt": attempt,
    }


def summary_columns(
    calls: Sequence[Mapping[str, Any]], record: Mapping[str, Any]
) -> dict[str, Any]:
    """Sums over the rows of its calls, and what its rollout record says. A sum is null where no call reported its part."""
    tokens_in, tokens_out = _known(calls, "tokens_in"), _known(calls, "tokens_out")
    cached = [call for call in calls if call["cached_tokens"] is not None]
    starts = _known(calls, "started_at")
    ends = _known(calls, "completed_at")
    ttft = _known(calls, "ttft_ms")
    edges = [call["start_us"] for call in calls]
    if record:
        edges.append(unix_ns(record.get("started_at")) // 1000)
    models = sorted({call["model"] for call in calls if call["model"]})
    started = min(starts, default=real(record.get("started_at")))
    completed = max(ends, default=real(record.get("completed_at")))
    return {
        "calls": len(calls),
        "errors": sum(call["failed"] for call in calls),
        "truncated": sum(call["truncated"] for call in calls),
        "tokens_in": sum(tokens_in) if tokens_in else None,
        "tokens_in_known": len(tokens_in),
        "tokens_out": sum(tokens_out) if tokens_out else None,
        "tokens_out_known": len(tokens_out),
        "cached_tokens": sum(call["cached_tokens"] for call in cached) if cached else None,
        "cached_of": sum(call["tokens_in"] or 0 for call in cached) if cached else None,
        "started_at": started,
        "completed_at": completed,
        "duration_ms": None
        if started is None or completed is None
        else round(max(0.0, completed - started) * 1000, 2),
        "model_ms": round(
            covered_s(
                (call["started_at"], call["completed_at"])
                for call in calls
                if call["started_at"] is not None and call["completed_at"] is not None
            )
            * 1000,
            2,
        ),
        "ttft_ms": statistics.median(ttft) if ttft else None,
        "models": "\n".join(models),
        "reward": real(record.get("reward")),
        "error": text(record.get("error")),
        "agent": text(record.get("agent")),
        "first_us": min(edges, default=0),
        "last_us": max(edges, default=0),
    }


def covered_s(intervals: Iterable[tuple[float, float]]) -> float:
    """Seconds that at least one of the intervals covers."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        if stop > end:
            total += stop - max(start, end)
            end = stop
    return total


def _known(calls: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    return [call[key] for call in calls if call[key] is not None]
