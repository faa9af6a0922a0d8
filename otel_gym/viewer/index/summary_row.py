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
from otel_gym.viewer.index.schema import CallRow

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


def summary_columns(calls: Sequence[CallRow], record: Mapping[str, Any]) -> dict[str, Any]:
    """Sums over the rows of its calls, and what its rollout record says. A sum is null where no call reported its part."""
    errors = truncated = 0
    tokens_in = tokens_in_known = tokens_out = tokens_out_known = 0
    cached_tokens = cached_of = cached_known = 0
    starts: list[float] = []
    ends: list[float] = []
    ran: list[tuple[float, float]] = []
    ttft: list[float] = []
    models: set[str] = set()
    edges = [call.start_us for call in calls]
    for call in calls:
        errors += call.failed
        truncated += call.truncated
        if call.tokens_in is not None:
            tokens_in += call.tokens_in
            tokens_in_known += 1
        if call.tokens_out is not None:
            tokens_out += call.tokens_out
            tokens_out_known += 1
        if call.cached_tokens is not None:
            cached_tokens += call.cached_tokens
            cached_of += call.tokens_in or 0
            cached_known += 1
        start, end = call.started_at, call.completed_at
        if start is not None:
            starts.append(start)
            if end is not None:
                ran.append((start, end))
        if end is not None:
            ends.append(end)
        if call.ttft_ms is not None:
            ttft.append(call.ttft_ms)
        if call.model:
            models.add(call.model)
    if record:
        edges.append(unix_ns(record.get("started_at")) // 1000)
    started = min(starts) if starts else real(record.get("started_at"))
    completed = max(ends) if ends else real(record.get("completed_at"))
    return {
        "calls": len(calls),
        "errors": errors,
        "truncated": truncated,
        "tokens_in": tokens_in if tokens_in_known else None,
        "tokens_in_known": tokens_in_known,
        "tokens_out": tokens_out if tokens_out_known else None,
        "tokens_out_known": tokens_out_known,
        "cached_tokens": cached_tokens if cached_known else None,
        "cached_of": cached_of if cached_known else None,
        "started_at": started,
        "completed_at": completed,
        "duration_ms": None
        if started is None or completed is None
        else round(max(0.0, completed - started) * 1000, 2),
        "model_ms": round(covered_s(ran) * 1000, 2),
        "ttft_ms": statistics.median(ttft) if ttft else None,
        "models": "\n".join(sorted(models)),
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
