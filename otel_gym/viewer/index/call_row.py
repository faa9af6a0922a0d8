"""A raw record as a row of the index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_gym.capture.derive import derive_fields
from otel_gym.correlation.run import Run
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.span_data import ERROR
from otel_gym.tracing.spans import NOT_FAILURES, RecordPlace, span_from_record
from otel_gym.viewer.conversation import response_messages
from otel_gym.viewer.index.messages import chain, request_items
from otel_gym.viewer.index.schema import CALL_COLUMNS

GIST_LENGTH: Final = 80
"""Longest gist, in characters."""


def call_row(
    raw: Mapping[str, Any],
    *,
    number: int,
    length_bytes: int,
    place: RecordPlace,
    run: Run,
    options: SpanOptions,
    seen: dict[str, int],
    own_trace: str,
) -> dict[str, Any]:
    """The row; a value of a wrong type is null, whatever the line holds.

    `seen` has the number of the latest earlier call by its `chain`; this call is added.
    """
    derived = derive_fields(raw)
    span = span_from_record(raw, place, run, options)
    error = text(derived["error_category"])
    resend = derived["resend"] or {}
    items = request_items(str(derived["dialect"]), derived["request"] or {})
    extends, repeated, digest = None, 0, ""
    for place_in_request, digest in enumerate(chain(items), 1):
        if digest in seen:
            extends, repeated = seen[digest], place_in_request
    if items:
        seen[digest] = number
    row = {
        "number": number,
        "offset_bytes": place.offset_bytes,
        "length_bytes": length_bytes,
        "model_call_id": text(derived["model_call_id"]),
        "span_id": span.span_id,
        "span_name": storable(span.name),
        "span_error": int(span.status.code == ERROR),
        "foreign_trace": span.trace_id if span.trace_id != own_trace else None,
        "start_us": span.start_ns // 1000,
        "end_us": span.end_ns // 1000,
        "dialect": text(derived["dialect"]),
        "model": text(derived["model"]),
        "started_at": real(derived["started_at"]),
        "completed_at": real(derived["completed_at"]),
        "latency_ms": real(derived["latency_total_ms"]),
        "ttft_ms": real(derived["latency_ttft_ms"]) if derived.get("streamed") else None,
        "streamed": int(bool(derived.get("streamed"))),
        "terminal": text(derived.get("stream_terminal")),
        "status_code": whole(derived["status_code"]),
        "error": error,
        "failed": int(error is not None and error not in NOT_FAILURES),
        "truncated": int(bool(span.attributes.get("otel_gym.response.truncated"))),
        "finish_reason": text(derived["finish_reason"]),
        "tokens_in": whole(derived["tokens_in"]),
        "tokens_out": whole(derived["tokens_out"]),
        "tokens_reasoning": whole(derived["tokens_reasoning"]),
        "cached_tokens": whole(derived["cached_tokens"]),
        "cache_creation_tokens": whole(derived["cache_creation_tokens"]),
        "tool_calls": len(derived["tool_calls"]),
        "resend_of": text(resend.get("of")),
        "messages": len(items),
        "chain": digest,
        "extends": extends,
        "repeated": repeated,
        "gist": gist(derived["tool_calls"], derived["response"]),
    }
    assert len(row) == len(CALL_COLUMNS)
    return row


def gist(tool_calls: list[dict[str, Any]], response: Mapping[str, Any] | None) -> str:
    """What the answer is, in a few words: the tools it calls, else how its text begins."""
    names = [str(call.get("name")) for call in tool_calls[:4]]
    if names:
        return storable(", ".join(names)[:GIST_LENGTH])
    for message in response_messages(response):
        for part in message.parts:
            if part.kind in ("text", "refusal") and part.text.strip():
                return storable(" ".join(part.text[: 4 * GIST_LENGTH].split())[:GIST_LENGTH])
    return ""


def storable(value: str) -> str:
    """Text that SQLite can hold: lone surrogates become visible escapes."""
    return value.encode("utf-8", "backslashreplace").decode()


def text(value: object) -> str | None:
    """A string of at most 500 characters."""
    return storable(value[:500]) if isinstance(value, str) else None


def whole(value: object) -> int | None:
    """An integer of 64 bits."""
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def real(value: object) -> float | None:
    """A finite number."""
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)  # type: ignore[arg-type] # an int or a float by the line above
    except OverflowError:
        return None
    return number if abs(number) < 1e15 else None
