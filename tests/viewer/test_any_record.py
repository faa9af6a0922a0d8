"""Whatever JSON a line holds, it can be indexed and shown."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gym.capture.derive import derive_fields
from otel_gym.correlation.run import Run
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.span_data import ERROR
from otel_gym.tracing.spans import RecordPlace, span_from_record
from otel_gym.tracing.trace_place import rollout_names
from otel_gym.viewer.bodies import bodies
from otel_gym.viewer.call_page import conversation, sampling, tools
from otel_gym.viewer.curl import curl_command
from otel_gym.viewer.index.call_row import call_row, real, storable, text, tokens, whole
from otel_gym.viewer.index.schema import CALL_COLUMNS, CallRow
from otel_gym.viewer.index.summary_row import summary_columns
from otel_gym.viewer.rollout_page import shown_call
from otel_gym.viewer.templating import environment
from otel_gym.viewer.timeline import timeline

DRAWN = environment().from_string(
    "{% import 'parts.html' as parts %}{% for m in messages %}{{ parts.message(m) }}{% endfor %}"
)
RUN = Run(schema=1, run_id="r", created_at=0.0, resource={})
PLACE = RecordPlace("0-0", "0-0.capture.jsonl", 0)
NAMES = rollout_names("r", "0-0")
KEYS = ["model_call_id", "dialect", "model_ref", "started_at", "completed_at", "latency_ms", "latency_ttft_ms", "status_code", "error_category", "request", "response", "response_raw", "request_raw", "schema", "trace", "engine", "client", "stream", "sampling", "resend", "exception", "unmerged", "request_cut", "model", "messages", "input", "prompt", "system", "instructions", "role", "content", "type", "text", "choices", "message", "delta", "tool_calls", "function", "name", "arguments", "output", "summary", "usage", "prompt_tokens", "input_tokens", "completion_tokens", "output_tokens", "cached_tokens", "prompt_tokens_details", "finish_reason", "stop_reason", "id", "call_id", "image_url", "url", "source", "data", "media_type", "file", "thinking", "reasoning", "reasoning_content", "refusal", "requested", "pinned", "effective", "overridden", "tools", "address", "port", "chunks", "terminal", "count", "of", "inbound", "traceparent", "trace_id", "span_id", "parent_span_id"]  # fmt: skip
TYPES = ("chat", "responses", "messages", "completions", "text", "image_url", "tool_use", "tool_result", "function_call", "function_call_output", "reasoning", "web_search_call", "input_audio", "complete", "user", "tool")  # fmt: skip

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(TYPES)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=15,
)
records = st.dictionaries(st.sampled_from(KEYS), values, max_size=14)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(records, min_size=1, max_size=3))
def test_any_record_can_be_indexed_and_shown(raws: list[dict[str, Any]]) -> None:
    """Rows go into the database, and timeline, conversation, sampling, bodies and curl come out, for any JSON object."""
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE calls({','.join(CALL_COLUMNS)})")
    seen: dict[str, int] = {}
    rows = []
    for number, made in enumerate(raws):
        raw = orjson.loads(
            json.dumps(made)
        )  # as a line is read: numbers beyond 64 bits are no integers
        row = call_row(raw, number=number, offset_bytes=0, length_bytes=1, names=NAMES, seen=seen)
        connection.execute(
            f"INSERT INTO calls VALUES({','.join('?' * len(CALL_COLUMNS))})",
            row,
        )
        rows.append(row)
        _check_against_span_and_derived(row, raw)
        asked, answered = conversation(raw)
        DRAWN.render(messages=[*asked, *answered])
        sampling(raw)
        tools(raw.get("request"))
        bodies(raw, b"")
        if isinstance(raw.get("request"), dict):
            assert curl_command(raw, raw["request"]).startswith("curl -sS 'http")
        orjson.dumps(shown_call(row._asdict()))
    timeline([row._asdict() for row in rows])
    orjson.dumps(summary_columns(rows, orjson.loads(json.dumps(raws[0]))))
    connection.close()


def _check_against_span_and_derived(row: CallRow, raw: dict[str, Any]) -> None:
    """What a row says without making the span and the derived record is what those say."""
    span = span_from_record(raw, PLACE, RUN, SpanOptions())
    assert row.span_id == span.span_id
    assert row.span_name == storable(span.name)
    assert row.foreign_trace == (span.trace_id if span.trace_id != NAMES.trace_id else None)
    assert row.span_error == row.failed == int(span.status.code == ERROR)
    assert (row.start_us, row.end_us) == (span.start_ns // 1000, span.end_ns // 1000)
    assert row.truncated == int("otel_gym.response.truncated" in span.attributes)
    if isinstance(raw.get("error_category"), (list, dict)):
        return  # a category that is no text has no derived record
    derived = derive_fields(raw)
    for name in ("model_call_id", "dialect", "model", "finish_reason"):
        assert getattr(row, name) == text(derived[name]), name
    assert row.error == text(derived["error_category"])
    assert row.terminal == text(derived.get("stream_terminal"))
    assert row.streamed == int(bool(derived.get("streamed")))
    assert row.latency_ms == real(derived["latency_total_ms"])
    assert row.ttft_ms == (real(derived["latency_ttft_ms"]) if row.streamed else None)
    assert (row.started_at, row.completed_at) == (
        real(derived["started_at"]),
        real(derived["completed_at"]),
    )
    assert row.status_code == whole(derived["status_code"])
    for name in ("tokens_in", "tokens_out", "tokens_reasoning", "cached_tokens"):
        assert getattr(row, name) == tokens(derived[name]), name
    assert row.cache_creation_tokens == tokens(derived["cache_creation_tokens"])
    assert row.tool_calls == len(derived["tool_calls"])
    assert row.resend_of == text((derived["resend"] or {}).get("of"))
