"""The call's context for whatever is instrumented around it: the app below, the engine, and the agent above.

Only the OpenTelemetry API is used, and only when a function is called: without an SDK everything here costs next to nothing and records nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from otel_gym.capture.current import CurrentCall
from otel_gym.correlation.rollout_id import rollout_id_from_run_body
from otel_gym.correlation.run import Run
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from otel_gym.tracing.w3c import format_traceparent

if TYPE_CHECKING:
    from opentelemetry.context import Context


def otel_context(current: CurrentCall, base: Context | None = None) -> Context:
    """An OpenTelemetry context in which the span of `current` is the current one; `base` (null: the current context) keeps its baggage."""
    trace, _ = _api()
    state = trace.TraceState.from_header([current.tracestate]) if current.tracestate else None
    span = trace.NonRecordingSpan(
        trace.SpanContext(
            trace_id=int(current.trace_id, 16),
            span_id=int(current.span_id, 16),
            is_remote=False,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
            trace_state=state,
        )
    )
    return cast("Context", trace.set_span_in_context(span, base))


@cache
def _api() -> tuple[Any, Any]:
    """The modules `opentelemetry.trace` and `opentelemetry.context`. An import statement in a function costs as much as all the rest here, at every call."""
    from opentelemetry import context, trace

    return trace, context


@contextmanager
def call_context(current: CurrentCall) -> Iterator[Context]:
    """Makes the span of `current` the current one: instrumented code inside nests under it."""
    _, api = _api()
    context = otel_context(current)
    token = api.attach(context)
    try:
        yield context
    finally:
        api.detach(token)


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
