"""`gen_ai.*` metrics, from spans as they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from otel_gym.tracing.reading import count, mapping, number
from otel_gym.tracing.semconv import CONVENTIONS
from otel_gym.tracing.span_data import INTERNAL, SpanData

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation

LABELS: Final = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "server.address",
    "server.port",
)
"""Span attributes that are labels of every `gen_ai.client.*` metric; `error.type` joins on durations and token histograms."""

_USAGE: Final = (
    ("input_tokens", True),
    ("output_tokens", True),
    ("cache_read.input_tokens", True),
    ("cache_write.input_tokens", False),
    ("reasoning.output_tokens", False),
)
"""Token counts, and whether providers may break them down by modality."""
_MODALITIES: Final = ("text", "image", "audio")
_MODELS: Final = ("gen_ai.request.model", "gen_ai.response.model")
_MODALITY: Final = "gen_ai.token.modality"
_Labels: TypeAlias = tuple[tuple[str, Any], ...]
_CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
_CACHE_CREATION: Final = "gen_ai.usage.cache_creation.input_tokens"


MAX_LABEL_SETS: Final = 1000
"""Distinct sets of labels that one process makes; model names come from callers, so past this they are written as `_OTHER`."""


class CallMetrics:
    """The instruments of the chosen convention versions. `on_span` is called by one thread.

    Token counters are sums kept here and observed at export: adding to an SDK counter costs as much as making a whole span.
    """

    def __init__(self, meter: Meter, versions: tuple[str, ...]) -> None:
        self._histograms: dict[str, Histogram] = {}
        self._sums: dict[str, dict[_Labels, int]] = {}
        self._known: set[_Labels] = set()
        for version in versions:
            for name, instrument in CONVENTIONS[version].metrics.items():
                if instrument.kind == "counter":
                    sums = self._sums[name] = {}
                    meter.create_observable_counter(
                        name, [_observing(sums)], instrument.unit, instrument.meaning
                    )
                else:
                    self._histograms[name] = meter.create_histogram(
                        name,
                        instrument.unit,
                        instrument.meaning,
                        explicit_bucket_boundaries_advisory=list(instrument.buckets),
                    )

    def on_span(self, span: SpanData, record: Mapping[str, Any]) -> None:
        """Counts one call, or one rollout."""
        context = _context(span)
        if span.kind == INTERNAL:
            self._on_rollout(span, record, context)
            return
        attributes = span.attributes
        labels = self._labels(attributes)
        failed = dict(labels)
        if "error.type" in attributes:
            failed["error.type"] = attributes["error.type"]
        duration_s = (span.end_ns - span.start_ns) / 1e9
        self._record("duration", duration_s, failed, context)
        first_s = attributes.get("gen_ai.response.time_to_first_chunk")
        if isinstance(first_s, float):
            self._record("time_to_first_chunk", first_s, labels, context)
            chunks = count(mapping(record.get("stream")).get("chunks"))
            latency_ms = number(record.get("latency_ms"))
            if chunks is not None and chunks > 1 and latency_ms is not None:
                mean_s = max(0.0, latency_ms / 1000 - first_s) / (chunks - 1)
                self._record("time_per_output_chunk", mean_s, labels, context)
        self._count_tokens(attributes, labels, failed, context)

    def _labels(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        labels = {name: attributes[name] for name in LABELS if name in attributes}
        key = tuple(labels.items())
        if key not in self._known:
            if len(self._known) >= MAX_LABEL_SETS:
                return labels | {name: "_OTHER" for name in _MODELS if name in labels}
            self._known.add(key)
        return labels

    def _on_rollout(self, span: SpanData, record: Mapping[str, Any], context: Context) -> None:
        if "gen_ai.invoke_agent.duration" not in self._histograms:
            return
        labels: dict[str, Any] = {
            name: span.attributes[name]
            for name in ("gen_ai.operation.name", "gen_ai.agent.name", "error.type")
            if name in span.attributes
        }
        duration_s = (span.end_ns - span.start_ns) / 1e9
        self._histograms["gen_ai.invoke_agent.duration"].record(duration_s, labels, context)
        agent = {name: labels[name] for name in ("gen_ai.agent.name",) if name in labels}
        totals = mapping(record.get("totals"))
        for total, measure in (("model_calls", "inference_calls"), ("tool_calls", "tool_calls")):
            if (calls := count(totals.get(total))) is not None:
                self._histograms[f"gen_ai.invoke_agent.{measure}"].record(calls, agent, context)

    def _record(
        self, measure: str, value: float, labels: Mapping[str, Any], context: Context
    ) -> None:
        """Records a duration under the names of all chosen versions."""
        for family in ("gen_ai.client.inference.", "gen_ai.client.operation."):
            histogram = self._histograms.get(family + measure)
            if histogram is not None:
                histogram.record(value, labels, context)

    def _count_tokens(
        self,
        attributes: Mapping[str, Any],
        labels: dict[str, Any],
        failed: dict[str, Any],
        context: Context,
    ) -> None:
        key = tuple(labels.items())
        for measure, has_parts in _USAGE:
            sums = self._sums.get(f"gen_ai.client.inference.usage.{measure}")
            if sums is None:
                continue
            tokens = attributes.get(f"gen_ai.usage.{measure}")
            if tokens is None and measure == "cache_write.input_tokens":
                tokens = attributes.get(_CACHE_CREATION)
            tokens = tokens or 0
            if has_parts:
                for modality in _MODALITIES:
                    part = attributes.get(f"gen_ai.usage.{modality}.{measure}")
                    if part:
                        told = (*key, (_MODALITY, modality))
                        sums[told] = sums.get(told, 0) + part
                        tokens -= part
            # What a provider does not break down has no known modality.
            rest = (*key, (_MODALITY, "unknown"))
            sums[rest] = sums.get(rest, 0) + max(0, tokens)
        for measure, token_type in (("input_tokens", "input"), ("output_tokens", "output")):
            tokens = attributes.get(f"gen_ai.usage.{measure}")
            if tokens is None:
                continue
            histogram = self._histograms.get(f"gen_ai.client.inference.operation.{measure}")
            if histogram is not None:
                histogram.record(tokens, failed, context)
            older = self._histograms.get("gen_ai.client.token.usage")
            if older is not None:
                older.record(tokens, {**labels, "gen_ai.token.type": token_type}, context)


def _observing(
    sums: Mapping[_Labels, int],
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    from opentelemetry.metrics import Observation

    # A copy, since the exporting thread may add a set of labels meanwhile.
    return lambda options: [Observation(value, dict(key)) for key, value in list(sums.items())]


def _context(span: SpanData) -> Context:
    """A context in which `span` is current, so that exemplars carry its ids."""
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    return set_span_in_context(
        NonRecordingSpan(
            SpanContext(
                int(span.trace_id, 16),
                int(span.span_id, 16),
                is_remote=False,
                trace_flags=TraceFlags(TraceFlags.SAMPLED),
            )
        ),
        Context(),
    )
