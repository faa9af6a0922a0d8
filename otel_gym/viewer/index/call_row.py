"""A raw record as a row of the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_gym.capture.contents import tool_calls_of
from otel_gym.capture.derive import finish_reasons
from otel_gym.correlation.trace_ids import span_id as call_span_id
from otel_gym.dialects.usage import read_usage
from otel_gym.tracing import reading
from otel_gym.tracing.request_facts import OPERATIONS
from otel_gym.tracing.response_facts import LIMIT_REASONS
from otel_gym.tracing.span_data import CLIENT, SpanData
from otel_gym.tracing.spans import NOT_FAILURES, unix_ns
from otel_gym.tracing.trace_place import RolloutNames, place_in_trace
from otel_gym.viewer.conversation import response_messages
from otel_gym.viewer.index.messages import chain, request_items
from otel_gym.viewer.index.schema import CallRow

_TERMINALS: Final[Mapping[str | None, str]] = {
    None: "complete",
    "incomplete": "incomplete",
    "upstream_error": "error",
    "stream_truncated": "none",
}
GIST_LENGTH: Final = 80
"""Longest gist, in characters."""


def call_row(
    raw: Mapping[str, Any],
    *,
    number: int,
    offset_bytes: int,
    length_bytes: int,
    names: RolloutNames,
    seen: dict[str, int],
) -> CallRow:
    """The row; a value of a wrong type is null, whatever the line holds.

    `names` are those of its rollout. `seen` has the number of the latest earlier call by its `chain`; this call is added. What it says of the span is what `span_from_record` says, without
    the cost of the attributes (a test compares the two); the rest is what `derive_fields` says.
    """
    request, response = _object(raw.get("request")), _object(raw.get("response"))
    dialect, category = raw.get("dialect"), raw.get("error_category")
    failed = int(_failed(reading.text(category)))
    trace_id, span_id = _ids(raw, names)
    start_us, end_us = (
        unix_ns(raw.get("started_at")) // 1000,
        unix_ns(raw.get("completed_at")) // 1000,
    )
    usage = read_usage(str(dialect), response)
    reasons = finish_reasons(response)
    called = tool_calls_of(response)
    streamed, terminal = _stream(raw)
    items = request_items(str(dialect), request)
    extends, repeated, digest = None, 0, ""
    for place_in_request, digest in enumerate(chain(items), 1):
        if digest in seen:
            extends, repeated = seen[digest], place_in_request
    if items:
        seen[digest] = number
    model = response.get("model")
    return CallRow(
        number=number,
        offset_bytes=offset_bytes,
        length_bytes=length_bytes,
        model_call_id=text(raw.get("model_call_id")),
        span_id=span_id,
        span_name=_span_name(dialect, request),
        span_error=failed,
        foreign_trace=trace_id if trace_id != names.trace_id else None,
        start_us=start_us,
        end_us=max(start_us, end_us),
        dialect=text(dialect),
        model=text(model if isinstance(model, str) and model else request.get("model")),
        started_at=real(raw.get("started_at")),
        completed_at=real(raw.get("completed_at")),
        latency_ms=real(raw.get("latency_ms")),
        ttft_ms=real(raw.get("latency_ttft_ms")) if streamed else None,
        streamed=int(streamed),
        terminal=terminal,
        status_code=whole(raw.get("status_code")),
        error=text(category),
        failed=failed,
        truncated=int(category == "stream_truncated" or _limited(reasons)),
        finish_reason=text(next((reason for reason in reasons if reason is not None), None)),
        tokens_in=tokens(usage.input),
        tokens_out=tokens(usage.output),
        tokens_reasoning=tokens(usage.reasoning),
        cached_tokens=tokens(usage.cached),
        cache_creation_tokens=tokens(usage.cache_write),
        tool_calls=len(called),
        resend_of=text(_object(raw.get("resend")).get("of")),
        messages=len(items),
        chain=digest,
        extends=extends,
        repeated=repeated,
        gist=gist(called, response),
    )


def gist(tool_calls: list[dict[str, Any]], response: Mapping[str, Any] | None) -> str:
    """What the answer is, in a few words: the tools it calls, else how its text begins."""
    if tool_calls:
        names = ", ".join([str(call.get("name")) for call in tool_calls[:4]])
        return storable(names[:GIST_LENGTH])
    for message in response_messages(response):
        for part in message.parts:
            if part.kind in ("text", "refusal") and part.text.strip():
                return _beginning(part.text)
    return ""


def _beginning(prose: str) -> str:
    return storable(" ".join(prose[: 4 * GIST_LENGTH].split())[:GIST_LENGTH])


def _ids(raw: Mapping[str, Any], names: RolloutNames) -> tuple[str, str]:
    """Trace and span id of the span of a record."""
    identity = call_span_id(str(raw.get("model_call_id")))
    if not (trace := reading.mapping(raw.get("trace"))):
        return names.trace_id, identity
    span = SpanData("", CLIENT, names.trace_id, identity, names.root_span_id, 0, 0, {})
    place_in_trace(span, trace, names)
    return span.trace_id, span.span_id


def _span_name(dialect: object, request: Mapping[str, Any]) -> str:
    operation = OPERATIONS.get(dialect, "chat") if type(dialect) is str else "chat"
    model = reading.text(request.get("model"))
    return storable(f"{operation} {model}") if model else operation


def _stream(raw: Mapping[str, Any]) -> tuple[bool, str | None]:
    """Whether there was a stream, and how it ended."""
    stream = raw.get("stream")
    if isinstance(stream, dict):
        return True, text(stream.get("terminal"))
    if "schema" in raw or not isinstance(raw.get("response_raw"), str):
        return False, None
    if not isinstance(raw.get("response"), dict):
        return False, None
    # A line of another producer: the wire's text beside an answer was a stream, and the category tells how it ended.
    category = raw.get("error_category")
    return True, _TERMINALS.get(category) if category is None or type(category) is str else None


def _limited(reasons: Sequence[str | None]) -> bool:
    return not LIMIT_REASONS.isdisjoint(reasons[: reading.MAX_ITEMS])


def _failed(category: str | None) -> bool:
    return category is not None and category not in NOT_FAILURES


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def storable(value: str) -> str:
    """Text that SQLite can hold: lone surrogates become visible escapes."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def text(value: object) -> str | None:
    """A string of at most 500 characters."""
    return storable(value[:500]) if isinstance(value, str) else None


def whole(value: object) -> int | None:
    """An integer of 64 bits."""
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def tokens(value: int | None) -> int | None:
    """A count of tokens; none beyond a million million, so that sums of any run are integers of 64 bits."""
    return value if value is not None and value <= 10**12 else None


def real(value: object) -> float | None:
    """A finite number."""
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)  # type: ignore[arg-type] # an int or a float by the line above
    except OverflowError:
        return None
    return number if abs(number) < 1e15 else None
