"""Sums over the model calls of a rollout, which say how much they cover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from otel_gym.capture.record import ModelCallRecord

SUMS = (
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "tokens_total",
    "cached_tokens",
    "latency_total_ms",
)
"""Sums of the reference, in its order."""

MORE_SUMS = ("cache_creation_tokens", "tokens_audio_in", "tokens_audio_out")


def aggregate_model_call_records(records: Iterable[ModelCallRecord]) -> dict[str, Any]:
    """Sums over calls; a sum ignores calls without a value and is null only where no call had one.

    The reference's keys (`tokens_in`, `tokens_out`, `tokens_reasoning`, `tokens_total`, `cached_tokens`,
    `latency_total_ms`, `num_calls`), and
    `cache_creation_tokens`, `tokens_audio_in`, `tokens_audio_out`: more sums;
    `calls_with_value`: for every sum how many calls had a value;
    `num_calls_without_usage`: calls with neither input nor output tokens;
    `num_errors`, `errors`: calls with an error category, and how many of each;
    `num_streamed`, `num_truncated`, `num_tool_calls`;
    `latency_ttft_ms`: `count`, `sum`, `min`, `max`, `mean` over the calls that have one (null without any);
    `by_model`: per model name the sums, `num_calls`, `num_errors` and `num_calls_without_usage`.
    """
    total = _Sums()
    models: dict[str, _Sums] = {}
    for record in records:
        total.add(record)
        name = record.model if record.model is not None else ""
        models.setdefault(name, _Sums()).add(record)
    return {
        **total.sums(),
        "num_calls": total.calls,
        **total.more(),
        "calls_with_value": dict(total.with_value),
        "num_calls_without_usage": total.without_usage,
        "num_errors": sum(total.errors.values()),
        "errors": dict(sorted(total.errors.items())),
        "num_streamed": total.streamed,
        "num_truncated": total.errors["stream_truncated"],
        "num_tool_calls": total.tool_calls,
        "latency_ttft_ms": total.ttft(),
        "by_model": {
            name: {
                **sums.sums(),
                **sums.more(),
                "num_calls": sums.calls,
                "num_errors": sum(sums.errors.values()),
                "num_calls_without_usage": sums.without_usage,
            }
            for name, sums in sorted(models.items())
        },
    }


class _Sums:
    """The running figures of one group of calls; constant memory."""

    def __init__(self) -> None:
        self.calls = 0
        self.without_usage = 0
        self.streamed = 0
        self.tool_calls = 0
        self.errors: Counter[str] = Counter()
        self.with_value: dict[str, int] = dict.fromkeys((*SUMS, *MORE_SUMS), 0)
        self._values: dict[str, float] = dict.fromkeys((*SUMS, *MORE_SUMS), 0)
        self._ttft: list[float] | None = None
        self._ttft_calls = 0

    def add(self, record: ModelCallRecord) -> None:
        self.calls += 1
        if record.tokens_in is None and record.tokens_out is None:
            self.without_usage += 1
        self.streamed += record.streamed
        self.tool_calls += len(record.tool_calls)
        if record.error_category is not None:
            self.errors[record.error_category] += 1
        for name in self._values:
            value = getattr(record, name)
            if value is not None:
                self.with_value[name] += 1
                self._values[name] += value
        ttft = record.latency_ttft_ms
        if ttft is not None:
            self._ttft_calls += 1
            low, high, summed = self._ttft or (ttft, ttft, 0.0)
            self._ttft = [min(low, ttft), max(high, ttft), summed + ttft]

    def sums(self) -> dict[str, Any]:
        return {name: self._sum(name) for name in SUMS}

    def more(self) -> dict[str, Any]:
        return {name: self._sum(name) for name in MORE_SUMS}

    def ttft(self) -> dict[str, float] | None:
        if self._ttft is None:
            return None
        low, high, summed = self._ttft
        return {
            "count": self._ttft_calls,
            "sum": summed,
            "min": low,
            "max": high,
            "mean": summed / self._ttft_calls,
        }

    def _sum(self, name: str) -> float | None:
        return self._values[name] if self.with_value[name] else None
