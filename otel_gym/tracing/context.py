"""The call's context for whatever is instrumented around it: the app below, the engine, and the agent above.

Only the OpenTelemetry API is used, and only when a function is called: without an SDK everything here costs next to nothing and records nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from otel_gym.capture.current import CurrentCall
from otel_gym.correlation.rollout_id import rollout_id_from_run_body
from otel_gym.correlation.run import Run
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from otel_gym.tracing.w3c import format_traceparent

if TYPE_CHECKING:
    from opentelemetry.context import Context


def otel_context(current: CurrentCall, base: Context | None = None) -> Context:
    """An OpenTelemetry context in which the span of `current` is the current one; `base` (null: the current context) keeps its baggage."""
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        TraceState,
        set_span_in_context,
    )

    state = TraceState.from_header([current.tracestate]) if current.tracestate else None
    span = NonRecordingSpan(
        SpanContext(
            trace_id=int(current.trace_id, 16),
            span_id=int(current.span_id, 16),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
            trace_state=state,
        )
    )
    return set_span_in_context(span, base)


@contextmanager
def call_context(current: CurrentCall) -> Iterator[Context]:
    """Makes the span of `current` the current one: instrumented code inside nests under it."""
    from opentelemetry.context import attach, detach

    context = otel_context(current)
    token = attach(context)
    try:
        yield context
    finally:
        detach(token)


def rollout_trace_headers(body: Mapping[str, Any] | object, run: Run) -> dict[str, str]:
    """Headers that put an agent's own spans into the trace of the rollout that `body` (a run body) describes; empty where it names none.

    Raises `InvalidRolloutId` for an id that breaks the grammar.
    """
    rollout_id = rollout_id_from_run_body(body)
    if rollout_id is None:
        return {}
    return {
        "traceparent": format_traceparent(
            trace_id(run.run_id, rollout_id), root_span_id(run.run_id, rollout_id)
        )
    }
