"""The traces of a capture directory, made from the files when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from otel_gym.tracing.backfill import RolloutSpans
from otel_gym.tracing.span_data import SpanData
from otel_gym.viewer.index.indexer import Index

NO_SERVICE = "otel-gym"
"""Service of a run whose resource names none."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace: the spans that share its id, roots first, then by start."""

    trace_id: str
    spans: tuple[SpanData, ...]


class Traces:
    """Finds the spans of one run."""

    def __init__(self, index: Index) -> None:
        self.index = index

    @property
    def service(self) -> str:
        """The run's service."""
        return self.index.run.resource.get("service.name") or NO_SERVICE

    @property
    def resource(self) -> dict[str, str]:
        """What all spans of the run share."""
        return {**self.index.run.resource, "service.name": self.service}

    def of_rollout(self, rollout_id: str) -> list[SpanData]:
        """Every span of a rollout, its root included. Raises `OSError`."""
        spans = RolloutSpans(self.index.run, self.index.options)
        return [span for span, _ in spans.of(self.index.layout.root, rollout_id)]

    def trace(self, trace_id: str) -> Trace | None:
        """The trace with this id (32 hex digits), null where there is none."""
        spans = [
            span
            for rollout_id in self.index.rollouts_in_trace(trace_id)
            for span in self.of_rollout(rollout_id)
            if span.trace_id == trace_id
        ]
        return _trace(trace_id, spans) if spans else None

    def in_rollout(self, rollout_id: str) -> list[Trace]:
        """The traces that a rollout has spans in; a foreign one is whole, with the spans of other rollouts."""
        grouped: dict[str, list[SpanData]] = {}
        for span in self.of_rollout(rollout_id):
            grouped.setdefault(span.trace_id, []).append(span)
        found = []
        for trace_id, spans in grouped.items():
            rollouts = self.index.rollouts_in_trace(trace_id)
            whole = self.trace(trace_id) if rollouts != [rollout_id] else None
            found.append(whole or _trace(trace_id, spans))
        return found


def _trace(trace_id: str, spans: list[SpanData]) -> Trace:
    ordered = sorted(spans, key=lambda span: (bool(span.parent_span_id), span.start_ns))
    return Trace(trace_id, tuple(ordered))
