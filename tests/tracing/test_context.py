"""The call's context for instrumented neighbours."""

from __future__ import annotations

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_gym.capture.current import CurrentCall
from otel_gym.correlation.run import Run
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from otel_gym.errors import InvalidRolloutId
from otel_gym.tracing.context import call_context, otel_context, rollout_trace_headers


def current(tracestate: str | None = None) -> CurrentCall:
    return CurrentCall(
        "3-1", "c" * 32, "chat", "a" * 32, "b" * 16, "/v1/chat/completions", tracestate
    )


def test_the_calls_span_is_current_inside_and_only_there() -> None:
    """Inside, instrumented code sees the call's span, sampled and with its tracestate; afterwards what was there before."""
    before = trace.get_current_span()
    with call_context(current("k=v")):
        context = trace.get_current_span().get_span_context()
        assert (context.trace_id, context.span_id) == (int("a" * 32, 16), int("b" * 16, 16))
        assert context.trace_flags.sampled
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        assert carrier == {"traceparent": current().traceparent, "tracestate": "k=v"}
    assert trace.get_current_span() is before


def test_baggage_of_the_surrounding_context_stays() -> None:
    """Only the span is replaced: what else is in the context is passed on."""
    token = attach(baggage.set_baggage("tenant", "blue"))
    try:
        assert baggage.get_baggage("tenant", otel_context(current())) == "blue"
    finally:
        detach(token)


def test_the_context_is_left_when_the_call_fails() -> None:
    """An exception inside does not leave the call's span current."""
    before = trace.get_current_span()
    with pytest.raises(ValueError), call_context(current()):
        raise ValueError
    assert trace.get_current_span() is before


def test_rollout_headers_put_an_agent_into_the_rollouts_trace(run: Run) -> None:
    """The headers name the rollout's trace and root span; a body that names no rollout gives none."""
    body = {"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}
    headers = rollout_trace_headers(body, run)
    trace_part, span_part = trace_id("run-1", "3-1-a2"), root_span_id("run-1", "3-1-a2")
    assert headers == {"traceparent": f"00-{trace_part}-{span_part}-01"}
    context = trace.get_current_span(
        TraceContextTextMapPropagator().extract(headers)
    ).get_span_context()
    assert context.trace_id == int(trace_part, 16)
    assert rollout_trace_headers({}, run) == {}
    with pytest.raises(InvalidRolloutId):
        rollout_trace_headers({"_ng_rollout_id": "../x"}, run)
