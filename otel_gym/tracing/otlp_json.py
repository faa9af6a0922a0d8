"""Spans as OTLP JSON, one request a line: what the Collector's file receiver reads and Jaeger's page takes as an upload.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids are hex digits, 64-bit integers are strings, enums are numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from otel_gym.correlation.run import Run
from otel_gym.tracing.encode import FLAG_HAS_IS_REMOTE, FLAG_IS_REMOTE, scope_version
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.semconv import SCOPE_NAME, naming
from otel_gym.tracing.span_data import SpanData


def request_json(spans: Iterable[SpanData], run: Run, options: SpanOptions) -> dict[str, Any]:
    """An `ExportTraceServiceRequest` as a JSON object."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _pairs(dict(sorted(run.resource.items())))},
                "scopeSpans": [
                    {
                        "scope": {"name": SCOPE_NAME, "version": scope_version()},
                        "spans": [span_json(span) for span in spans],
                        "schemaUrl": naming(options.semconv).schema_url,
                    }
                ],
            }
        ]
    }


def request_line(spans: Iterable[SpanData], run: Run, options: SpanOptions) -> bytes:
    """`request_json` as one line."""
    return orjson.dumps(request_json(spans, run, options)) + b"\n"


def span_json(span: SpanData) -> dict[str, Any]:
    """One span as a JSON object."""
    value: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _pairs(span.attributes),
        "status": {},
    }
    if span.parent_span_id:
        value["parentSpanId"] = span.parent_span_id
        value["flags"] = FLAG_HAS_IS_REMOTE | (FLAG_IS_REMOTE if span.parent_is_remote else 0)
    if span.trace_state:
        value["traceState"] = span.trace_state
    if span.status.code:
        value["status"] = {"code": span.status.code}
        if span.status.description:
            value["status"]["message"] = span.status.description
    if span.links:
        value["links"] = [
            {
                "traceId": link.trace_id,
                "spanId": link.span_id,
                **({"traceState": link.trace_state} if link.trace_state else {}),
                "attributes": _pairs(link.attributes),
            }
            for link in span.links
        ]
    if span.events:
        value["events"] = [
            {
                "timeUnixNano": str(event.time_ns),
                "name": event.name,
                "attributes": _pairs(event.attributes),
            }
            for event in span.events
        ]
    return value


def any_value(value: Any) -> dict[str, Any]:
    """An `AnyValue` as JSON."""
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return (
            {"intValue": str(value)} if -(2**63) <= value < 2**63 else {"stringValue": str(value)}
        )
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else str(value)}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _pairs(value)}}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [any_value(item) for item in value]}}
    return {}


def plain_value(value: Mapping[str, Any]) -> Any:
    """The Python value of an `AnyValue` in JSON; the inverse of `any_value`."""
    if "stringValue" in value:
        return value["stringValue"]
    if "boolValue" in value:
        return value["boolValue"]
    if "intValue" in value:
        return int(value["intValue"])
    if "doubleValue" in value:
        return float(value["doubleValue"])
    if "arrayValue" in value:
        return [plain_value(item) for item in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return plain_pairs(value["kvlistValue"].get("values", ()))
    return None


def plain_pairs(pairs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Attributes of OTLP JSON as a dictionary."""
    return {pair["key"]: plain_value(pair.get("value", {})) for pair in pairs}


def _pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": str(key), "value": any_value(value)} for key, value in attributes.items()]
