"""Where a span stands: the ids of its rollout's trace, and what the caller's own trace makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from otel_gym.correlation.rollout_id import indices
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from otel_gym.tracing.reading import mapping, text
from otel_gym.tracing.span_data import AttributeValue, Link, SpanData
from otel_gym.tracing.w3c import is_span_id, is_trace_id, parse_traceparent

LINK_KIND: Final = "otel_gym.link"
"""Attribute of every link: `inbound` (the caller's trace), `rollout` (the rollout's root), `attempt` (the attempt before)."""


@dataclass(frozen=True, slots=True)
class RolloutNames:
    """What follows from the names of a run and a rollout alone."""

    trace_id: str
    root_span_id: str
    facts: tuple[tuple[str, AttributeValue], ...]


@lru_cache(maxsize=4096)
def rollout_names(run_id: str, rollout_id: str) -> RolloutNames:
    facts: list[tuple[str, AttributeValue]] = [
        ("otel_gym.run.id", run_id),
        ("otel_gym.rollout.id", rollout_id),
    ]
    numbers = indices(rollout_id)
    if numbers is not None:
        for name, value in zip(("task", "rollout", "attempt"), numbers, strict=True):
            if value < 2**63:
                facts.append((f"otel_gym.{name}.index", value))
    return RolloutNames(
        trace_id(run_id, rollout_id), root_span_id(run_id, rollout_id), tuple(facts)
    )


def place_in_trace(span: SpanData, trace: Mapping[str, Any], names: RolloutNames) -> None:
    """Applies what the record says of its trace: ids as the caller's headers and the mode made them, and the link."""
    inbound = mapping(trace.get("inbound"))
    caller = parse_traceparent(inbound.get("traceparent"))
    recorded_trace, recorded_parent = trace.get("trace_id"), trace.get("parent_span_id")
    recorded_span = trace.get("span_id")
    if is_span_id(recorded_span):
        span.span_id = str(recorded_span)
    mode = trace.get("mode")
    if caller is None:
        if is_trace_id(recorded_trace):
            span.trace_id = str(recorded_trace)
        if is_span_id(recorded_parent):
            span.parent_span_id = str(recorded_parent)
        return
    state = text(inbound.get("tracestate")) or ""
    continued = (
        caller.trace_id == recorded_trace
        if is_trace_id(recorded_trace)
        else mode == "parent" or caller.trace_id == names.trace_id
    )
    if continued:
        span.trace_id, span.parent_span_id = caller.trace_id, caller.span_id
        span.parent_is_remote = True
        span.trace_state = state
        if caller.trace_id != names.trace_id:
            span.links.append(
                Link(names.trace_id, names.root_span_id, attributes={LINK_KIND: "rollout"})
            )
        return
    if is_trace_id(recorded_trace):
        span.trace_id = str(recorded_trace)
    if is_span_id(recorded_parent):
        span.parent_span_id = str(recorded_parent)
    if mode != "ignore":
        span.links.append(
            Link(caller.trace_id, caller.span_id, state, attributes={LINK_KIND: "inbound"})
        )
