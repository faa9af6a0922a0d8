"""Spans as OTLP, checked against the official encoder and the protobuf definitions."""

from __future__ import annotations

from typing import Any

import orjson
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event as SdkEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link as SdkLink
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags, TraceState
from opentelemetry.trace import Status as SdkStatus

from otel_gym.correlation.run import Run
from otel_gym.tracing.encode import SpanEncoder, encode_span, scope_version
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.otlp_json import plain_pairs, request_json, request_line
from otel_gym.tracing.semconv import SCOPE_NAME
from otel_gym.tracing.span_data import Event, SpanData
from otel_gym.tracing.spans import RecordPlace, rollout_span, span_from_record
from tests.tracing.conftest import RESOURCE
from tests.tracing.records import BASE_TIME, REQUESTS, gym_record

OPTIONS = SpanOptions(content="SPAN_AND_EVENT")


def spans(run: Run) -> list[SpanData]:
    """One span of each kind: every dialect with content, a failed one, one with a link, a remote parent, and a root."""
    place = RecordPlace("3-1-a1", "3-1-a1.capture.jsonl", 99)
    inbound = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "k=v"}
    records: list[dict[str, Any]] = [gym_record(i, dialect) for i, dialect in enumerate(REQUESTS)]
    records.append(
        gym_record(9, error_category="timeout", response={"error": {"message": "zu spät, ✗"}})
    )
    records.append(gym_record(10, trace={"inbound": inbound, "mode": "link"}))
    records.append(gym_record(11, trace={"inbound": inbound, "mode": "parent"}))
    made = [span_from_record(record, place, run, OPTIONS) for record in records]
    root = {
        "rollout_id": "3-1-a1",
        "started_at": BASE_TIME,
        "completed_at": BASE_TIME + 60,
        "reward": 1,
        "agent": "a",
    }
    return [*made, rollout_span(root, run, OPTIONS)]


def readable(span: SpanData, run: Run) -> ReadableSpan:
    """`span` as the SDK's own object."""

    def context(trace_id: str, span_id: str, state: str = "", remote: bool = False) -> SpanContext:
        return SpanContext(
            int(trace_id, 16),
            int(span_id, 16),
            is_remote=remote,
            trace_flags=TraceFlags(1),
            trace_state=TraceState.from_header([state]) if state else None,
        )

    return ReadableSpan(
        name=span.name,
        context=context(span.trace_id, span.span_id, span.trace_state),
        parent=context(span.trace_id, span.parent_span_id, remote=span.parent_is_remote)
        if span.parent_span_id
        else None,
        resource=Resource(run.resource),
        attributes=span.attributes,
        kind=SpanKind.CLIENT if span.kind == 3 else SpanKind.INTERNAL,
        status=SdkStatus(StatusCode.ERROR, span.status.description or None)
        if span.status.code
        else SdkStatus(StatusCode.UNSET),
        start_time=span.start_ns,
        end_time=span.end_ns,
        links=[
            SdkLink(context(link.trace_id, link.span_id, link.trace_state), dict(link.attributes))
            for link in span.links
        ],
        events=[
            SdkEvent(event.name, dict(event.attributes), event.time_ns) for event in span.events
        ],
        instrumentation_scope=InstrumentationScope(
            SCOPE_NAME, scope_version(), SpanEncoder(run, OPTIONS).schema_url
        ),
    )


def test_our_encoding_is_what_the_official_encoder_writes(run: Run) -> None:
    """Each span means the same to a receiver whether the official encoder wrote it or ours did."""
    for span in spans(run):
        official = encode_spans([readable(span, run)])
        (theirs,) = official.resource_spans[0].scope_spans[0].spans
        ours = Span()
        ours.ParseFromString(encode_span(span))
        for message in (ours, theirs):
            for link in message.links:
                link.flags = 0  # whether a link's target is remote is of no account
                link.trace_state = ""  # which the official encoder leaves out of links
            message.status.SetInParent()
            _sort(message)
            message.flags = message.flags & 0x300 if span.parent_span_id else 0
        assert ours == theirs, span.name


def test_a_request_carries_resource_scope_and_schema_url(run: Run) -> None:
    """The joined bytes are one request with one resource and one scope, and the spans unchanged inside."""
    made = spans(run)
    encoder = SpanEncoder(run, OPTIONS)
    request = ExportTraceServiceRequest()
    request.ParseFromString(encoder.request([encode_span(span) for span in made]))
    (resource_spans,) = request.resource_spans
    attributes = {pair.key: pair.value.string_value for pair in resource_spans.resource.attributes}
    assert attributes == RESOURCE
    (scope_spans,) = resource_spans.scope_spans
    assert scope_spans.scope.name == "otel_gym"
    assert scope_spans.scope.version == scope_version()
    assert scope_spans.schema_url == "https://opentelemetry.io/schemas/gen-ai/0.1.0"
    assert [span.SerializeToString(deterministic=True) for span in scope_spans.spans] == [
        _again(encode_span(span)) for span in made
    ]


def test_json_lines_say_the_same_as_protobuf(run: Run) -> None:
    """The JSON form is OTLP JSON: read by protobuf's own reader (ids as OTLP writes them), it is the same request."""
    made = spans(run)
    value = orjson.loads(request_line(made, run, OPTIONS))
    assert value == request_json(made, run, OPTIONS)
    for span in value["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        _ids_to_base64(span)
        for link in span.get("links", ()):
            _ids_to_base64(link)
    theirs = json_format.ParseDict(value, ExportTraceServiceRequest())
    ours = ExportTraceServiceRequest()
    ours.ParseFromString(SpanEncoder(run, OPTIONS).request([encode_span(span) for span in made]))
    for left, right in zip(
        ours.resource_spans[0].scope_spans[0].spans,
        theirs.resource_spans[0].scope_spans[0].spans,
        strict=True,
    ):
        right.status.SetInParent()
        left.status.SetInParent()
        _sort(left)
        _sort(right)
        assert left == right
    attributes = request_json(made, run, OPTIONS)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert plain_pairs(attributes["attributes"]) == made[0].attributes


def test_values_that_otlp_cannot_hold_are_kept_as_text(run: Run) -> None:
    """A lone surrogate and an integer beyond 64 bits neither raise nor break the message."""
    span = spans(run)[0]
    span.name = "chat \ud800"
    span.attributes = {"a": "\udfff", "k\ud800": "v"}
    span.events = [Event("e", 1, {"n": 2**70, "x": "\ud800", "none": None})]
    decoded = Span()
    decoded.ParseFromString(encode_span(span))
    assert decoded.name == "chat ?"
    assert decoded.attributes[0].value.string_value == "?"
    assert decoded.events[0].attributes[0].value.string_value == str(2**70)
    span.attributes, span.events, span.name = {}, [], "chat qwen3-8b"
    span.attributes.update(spans(run)[0].attributes)


def _sort(span: Span) -> None:
    """Attributes are a set: their order says nothing."""
    span.attributes.sort(key=lambda pair: pair.key)


def _again(encoded: bytes) -> bytes:
    span = Span()
    span.ParseFromString(encoded)
    return span.SerializeToString(deterministic=True)


def _ids_to_base64(value: dict[str, Any]) -> None:
    """Protobuf's JSON reader wants base64 where OTLP writes hex digits."""
    import base64

    for key in ("traceId", "spanId", "parentSpanId"):
        if key in value:
            value[key] = base64.b64encode(bytes.fromhex(value[key])).decode()
