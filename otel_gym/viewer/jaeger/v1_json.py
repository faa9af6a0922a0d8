"""Traces in the JSON of Jaeger's v1 API, the one that its UI and Grafana read. Times are microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from otel_gym.tracing.encode import scope_version
from otel_gym.tracing.semconv import SCOPE_NAME
from otel_gym.tracing.span_data import ERROR, Event, SpanData
from otel_gym.viewer.jaeger.search import KINDS
from otel_gym.viewer.jaeger.text import as_text
from otel_gym.viewer.jaeger.traces import Trace

_PROCESS: Final = "p1"
_SAFE_INTEGER: Final = 2**53 - 1


def envelope(
    data: Any, *, errors: list[dict[str, Any]] | None = None, total: int = 0
) -> dict[str, Any]:
    """What every v1 answer is wrapped in."""
    return {"data": data, "total": total, "limit": 0, "offset": 0, "errors": errors}


def trace_json(trace: Trace, resource: Mapping[str, str]) -> dict[str, Any]:
    """One trace; all its spans have the same process."""
    shown = short_id(trace.trace_id)
    tags = tags_of(item for item in resource.items() if item[0] != "service.name")
    return {
        "traceID": shown,
        "spans": [span_json(span) for span in trace.spans],
        "processes": {_PROCESS: {"serviceName": resource["service.name"], "tags": tags}},
        "warnings": None,
    }


def span_json(span: SpanData) -> dict[str, Any]:
    """One span."""
    tags: dict[str, Any] = {
        "otel.scope.name": SCOPE_NAME,
        "otel.scope.version": scope_version(),
        **span.attributes,
    }
    if kind := KINDS.get(span.kind):
        tags["span.kind"] = kind
    if span.status.code == ERROR:
        tags["otel.status_code"] = "ERROR"
        tags["error"] = True
        if span.status.description:
            tags["otel.status_description"] = span.status.description
    if span.trace_state:
        tags["w3c.tracestate"] = span.trace_state
    return {
        "traceID": short_id(span.trace_id),
        "spanID": span.span_id,
        "operationName": span.name,
        "references": _references(span),
        "startTime": span.start_ns // 1000,
        "duration": (span.end_ns - span.start_ns) // 1000,
        "tags": tags_of(tags.items()),
        "logs": [_log(event) for event in span.events],
        "processID": _PROCESS,
        "warnings": None,
    }


def tags_of(attributes: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Attributes as typed tags, sorted by key."""
    return [_tag(key, value) for key, value in sorted(attributes)]


def short_id(trace_id: str) -> str:
    """A trace id as Jaeger writes it: 16 digits where the upper 16 are zero."""
    return trace_id[16:] if trace_id.startswith("0" * 16) else trace_id


def _tag(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"key": key, "type": "bool", "value": value}
    if isinstance(value, int):
        safe = -_SAFE_INTEGER <= value <= _SAFE_INTEGER
        return {"key": key, "type": "int64", "value": value if safe else str(value)}
    if isinstance(value, float):
        return {"key": key, "type": "float64", "value": value}
    return {"key": key, "type": "string", "value": as_text(value)}


def _references(span: SpanData) -> list[dict[str, str]]:
    references = []
    if span.parent_span_id:
        references.append(_reference("CHILD_OF", span.trace_id, span.parent_span_id))
    for link in span.links:
        if link.trace_id == span.trace_id and link.span_id == span.parent_span_id:
            continue  # Jaeger has one reference for a parent that is linked too
        references.append(_reference("FOLLOWS_FROM", link.trace_id, link.span_id))
    return references


def _reference(kind: str, trace_id: str, span_id: str) -> dict[str, str]:
    return {"refType": kind, "traceID": short_id(trace_id), "spanID": span_id}


def _log(event: Event) -> dict[str, Any]:
    fields = [_tag("event", event.name)] if event.name and "event" not in event.attributes else []
    return {
        "timestamp": event.time_ns // 1000,
        "fields": fields + tags_of(event.attributes.items()),
    }
