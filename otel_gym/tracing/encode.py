"""Spans as OTLP protobuf: https://opentelemetry.io/docs/specs/otlp/.

The messages of `opentelemetry-proto` are filled directly, not through SDK span objects: that path costs about three to four times the CPU per span and
its processor drops spans from a full queue. Each span is encoded by itself, so that its exact size is known before it joins a batch, a refused
batch can be split without encoding again, and two exports of one record can be compared byte by byte. Requests are joined from the encoded parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_gym.correlation.run import Run
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.semconv import SCOPE_NAME, naming
from otel_gym.tracing.span_data import SpanData

_VARYING: Final = frozenset(
    {
        "gen_ai.response.id",
        "gen_ai.response.time_to_first_chunk",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.reasoning.output_tokens",
        "otel_gym.model_call.id",
        "otel_gym.record.offset",
        "otel_gym.resend.of",
        "otel_gym.sampling.outbound_sha256",
        "otel_gym.stream.chunks",
    }
)
"""Attributes that are seldom the same twice."""
_KEPT_LENGTH: Final = 128
_KEPT_ATTRIBUTES: Final = 8192
# Apart by type, since 1, 1.0 and True are one key of a dictionary.
_kept_texts: dict[tuple[str, Any], bytes] = {}
_kept_numbers: dict[tuple[str, Any], bytes] = {}
_kept_floats: dict[tuple[str, Any], bytes] = {}
_kept_lists: dict[tuple[str, Any], bytes] = {}

FLAG_HAS_IS_REMOTE = 0x100
FLAG_IS_REMOTE = 0x200

# Field numbers of the enclosing messages, as protobuf tags of length-delimited fields.
_REQUEST_RESOURCE_SPANS = b"\x0a"
_RESOURCE_SPANS_RESOURCE = b"\x0a"
_RESOURCE_SPANS_SCOPE_SPANS = b"\x12"
_SCOPE_SPANS_SCOPE = b"\x0a"
_SCOPE_SPANS_SPAN = b"\x12"
_SCOPE_SPANS_SCHEMA_URL = b"\x1a"


@lru_cache(maxsize=1)
def scope_version() -> str:
    """Version of the instrumentation scope."""
    return version("otel-gym")


class SpanEncoder:
    """Encodes the spans of one run."""

    def __init__(self, run: Run, options: SpanOptions) -> None:
        resource = Resource()
        for key in sorted(run.resource):
            _add(resource.attributes, key, run.resource[key])
        scope = InstrumentationScope(name=SCOPE_NAME, version=scope_version())
        self.resource = dict(sorted(run.resource.items()))
        self.schema_url = naming(options.semconv).schema_url
        self._resource = _field(_RESOURCE_SPANS_RESOURCE, resource.SerializeToString())
        self._scope = _field(_SCOPE_SPANS_SCOPE, scope.SerializeToString())
        self._schema_url = _field(_SCOPE_SPANS_SCHEMA_URL, self.schema_url.encode())
        self.overhead_bytes = (
            len(self._resource) + len(self._scope) + len(self._schema_url) + 3 * 11
        )
        """Most that a request adds to its spans, in bytes."""

    @staticmethod
    def encode(span: SpanData) -> bytes:
        """`span` as a `Span` message."""
        return encode_span(span)

    def request(self, encoded: Iterable[bytes]) -> bytes:
        """Encoded spans as an `ExportTraceServiceRequest`."""
        parts = [self._scope]
        for span in encoded:
            parts.append(_SCOPE_SPANS_SPAN)
            parts.append(_varint(len(span)))
            parts.append(span)
        parts.append(self._schema_url)
        scope_spans = b"".join(parts)
        resource_spans = self._resource + _field(_RESOURCE_SPANS_SCOPE_SPANS, scope_spans)
        return _field(_REQUEST_RESOURCE_SPANS, resource_spans)


def encode_span(span: SpanData) -> bytes:
    """`span` as a serialised `opentelemetry.proto.trace.v1.Span`."""
    message = Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        name=span.name if span.name.isascii() else _clean(span.name),
        kind=span.kind,  # type: ignore[arg-type] # an enum's number
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
    )
    if span.parent_span_id:
        message.parent_span_id = bytes.fromhex(span.parent_span_id)
        message.flags = (
            FLAG_HAS_IS_REMOTE | FLAG_IS_REMOTE if span.parent_is_remote else FLAG_HAS_IS_REMOTE
        )
    if span.trace_state:
        message.trace_state = _clean(span.trace_state)
    # Serialised messages that are joined are one merged message: what is often the same is serialised once and kept.
    parts = [b""]
    add = message.attributes.add
    for key, value in span.attributes.items():
        kind = type(value)
        if key in _VARYING:
            pair = add()
            pair.key = key
            if kind is int:
                pair.value.int_value = value
            else:
                _set(pair.value, value)
        elif kind is str and len(value) <= _KEPT_LENGTH:  # type: ignore[arg-type] # a string has a length
            parts.append(_kept_texts.get((key, value)) or _keep(_kept_texts, key, value))
        elif kind is int:
            parts.append(_kept_numbers.get((key, value)) or _keep(_kept_numbers, key, value))
        elif kind is float:
            parts.append(_kept_floats.get((key, value)) or _keep(_kept_floats, key, value))
        elif kind is list and sum(map(len, value)) <= _KEPT_LENGTH:  # type: ignore[arg-type] # a list of strings
            items = tuple(value)  # type: ignore[arg-type] # a list
            parts.append(_kept_lists.get((key, items)) or _keep(_kept_lists, key, items))
        else:
            _add(message.attributes, key, value)
    if span.status.code:
        message.status.code = span.status.code  # type: ignore[assignment] # an enum's number
        if span.status.description:
            message.status.message = _clean(span.status.description)
    for link in span.links:
        linked = message.links.add(
            trace_id=bytes.fromhex(link.trace_id), span_id=bytes.fromhex(link.span_id)
        )
        if link.trace_state:
            linked.trace_state = _clean(link.trace_state)
        for key, value in link.attributes.items():
            _add(linked.attributes, key, value)
    for event in span.events:
        happened = message.events.add(name=event.name, time_unix_nano=event.time_ns)
        for key, value in event.attributes.items():
            _add(happened.attributes, key, value)
    parts[0] = message.SerializeToString()
    return b"".join(parts)


def _keep(kept: dict[tuple[str, Any], bytes], key: str, value: Any) -> bytes:
    """The serialised span that has only this attribute, kept for the next time."""
    message = Span()
    _add(message.attributes, key, value)
    encoded: bytes = message.SerializeToString()
    if len(kept) >= _KEPT_ATTRIBUTES:
        kept.clear()
    kept[key, value] = encoded
    return encoded


def _add(pairs: Any, key: str, value: Any) -> None:
    pair: KeyValue = pairs.add()
    pair.key = _clean(key)
    _set(pair.value, value)


def _set(target: AnyValue, value: Any) -> None:
    """Fills an `AnyValue` from a Python value; mappings and lists become structured values."""
    if isinstance(value, str):
        target.string_value = _clean(value)
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        if -(2**63) <= value < 2**63:
            target.int_value = value
        else:
            target.string_value = str(value)
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, Mapping):
        target.kvlist_value.SetInParent()
        for key, item in value.items():
            _add(target.kvlist_value.values, str(key), item)
    elif isinstance(value, (list, tuple)):
        target.array_value.SetInParent()
        for item in value:
            _set(target.array_value.values.add(), item)
    elif value is not None:
        raise TypeError(f"an attribute cannot hold a {type(value).__name__}")


def _clean(text: str) -> str:
    """`text` as UTF-8 can hold it."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _field(tag: bytes, data: bytes) -> bytes:
    return tag + _varint(len(data)) + data if data else b""


def _varint(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "little")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
