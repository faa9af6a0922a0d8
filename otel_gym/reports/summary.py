"""One rollout in a line: calls, tokens, time and errors, from its records."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from otel_gym.capture.record import ModelCallRecord


@dataclass(frozen=True, slots=True)
class RolloutSummary:
    """Figures of one rollout. A token sum is null where no call reported it; `*_known` says how many calls did."""

    rollout_id: str
    calls: int
    tokens_in: int | None
    tokens_in_known: int
    tokens_out: int | None
    tokens_out_known: int
    cached_tokens: int | None
    ttft_ms: float | None
    """Median time to first chunk of the streamed calls, in milliseconds."""
    duration_ms: float | None
    """First start to last completion, in milliseconds."""
    errors: int
    models: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return asdict(self)


def summarise(rollout_id: str, records: Sequence[ModelCallRecord]) -> RolloutSummary:
    """The summary of one rollout's records."""
    tokens_in = _known(record.tokens_in for record in records)
    tokens_out = _known(record.tokens_out for record in records)
    cached = _known(record.cached_tokens for record in records)
    first_chunks = [
        record.latency_ttft_ms
        for record in records
        if is_stream(record) and record.latency_ttft_ms is not None
    ]
    starts = [record.started_at for record in records if record.started_at is not None]
    ends = [record.completed_at for record in records if record.completed_at is not None]
    return RolloutSummary(
        rollout_id=rollout_id,
        calls=len(records),
        tokens_in=sum(tokens_in) if tokens_in else None,
        tokens_in_known=len(tokens_in),
        tokens_out=sum(tokens_out) if tokens_out else None,
        tokens_out_known=len(tokens_out),
        cached_tokens=sum(cached) if cached else None,
        ttft_ms=statistics.median(first_chunks) if first_chunks else None,
        duration_ms=round((max(ends) - min(starts)) * 1000, 2) if starts and ends else None,
        errors=sum(record.error_category is not None for record in records),
        models=tuple(sorted({record.model for record in records if record.model})),
    )


def is_stream(record: ModelCallRecord) -> bool:
    """Whether the call was answered as a stream."""
    return record.stream_terminal is not None


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]
