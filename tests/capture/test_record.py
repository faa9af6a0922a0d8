"""The raw line: its keys, its categories, what is kept of odd bodies; and lines of other producers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from typing import Any

import httpx
import orjson
import pytest
from pydantic import ValidationError

from otel_gym.capture.categories import CATEGORIES
from otel_gym.capture.facts import Ending
from otel_gym.capture.record import (
    CaptureRecord,
    build_model_call_record,
    build_raw_record,
    encode_line,
)
from tests.dialects.facts import derived, facts, line
from tests.dialects.streams import DONE, chat, data, delta, event

REFERENCE_KEYS = [
    "model_call_id",
    "dialect",
    "model_ref",
    "started_at",
    "completed_at",
    "latency_ms",
    "latency_ttft_ms",
    "status_code",
    "error_category",
    "request",
    "response",
]
OUTCOME = {
    "upstream_attempted": True,
    "response_source": "upstream",
    "upstream_status_code": 200,
    "local_response_reason": None,
}


def test_keys_come_in_the_order_of_the_reference_then_ours() -> None:
    """A reader of the reference finds what it expects; ours follow, each only where it says something."""
    bare = line("chat", b'{"id": "x"}')
    assert list(bare) == [*REFERENCE_KEYS, "schema", "rollout_id"]
    full = line(
        "chat",
        chat(delta(content="a")) + b"data: oops\n\n" + DONE,
        streamed=True,
        request=b"[1]",
        chunks=2,
        client_session_id="s",
        outcome=OUTCOME,
        trace={"trace_id": "t", "span_id": "s"},
        engine={"provider": "vllm"},
        client={"agent_id": "a"},
        sampling={"requested": {}},
        resend={"count": 1},
        notes={"captured_path": "/v1/x", "rollout_id": "not this"},
    )
    assert list(full) == [
        *REFERENCE_KEYS,
        "client_session_id",
        *OUTCOME,
        "request_raw",
        "response_raw",
        "schema",
        "rollout_id",
        "trace",
        "engine",
        "client",
        "stream",
        "sampling",
        "resend",
        "unmerged",
        "captured_path",
    ]
    assert full["schema"] == 1 and full["rollout_id"] == "7-2"
    assert full["stream"] == {"chunks": 2, "terminal": "complete"}
    assert full["request"] is None and full["request_raw"] == "[1]"
    CaptureRecord.model_validate(full)


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (200, None), (204, None), (302, None), (304, None), (400, "client_error"), (401, "auth"), (403, "auth"),
        (404, "not_found"), (408, "timeout"), (422, "client_error"), (429, "rate_limit"), (500, "upstream_error"),
        (503, "upstream_error"), (504, "timeout"),
    ],
)  # fmt: skip
def test_categories_by_status(status: int, category: str | None) -> None:
    """The status decides where there is no stream."""
    assert line("chat", b'{"error": {}}', status_code=status)["error_category"] == category


class _UpstreamConnError(Exception):
    pass


class _HttpError(Exception):
    def __init__(self, status: object = None, content: bytes | None = None) -> None:
        self.status = status
        self.response_content = content


@pytest.mark.parametrize(
    ("exception", "status", "category"),
    [
        (TimeoutError(), None, "timeout"),
        (httpx.ConnectTimeout("x"), None, "timeout"),
        (httpx.ConnectError("x"), None, "connection"),
        (BrokenPipeError(), None, "connection"),
        (_UpstreamConnError(), None, "connection"),
        (asyncio.CancelledError(), None, "cancelled"),
        (ValueError("x"), None, "exception"),
        (_HttpError(429), 429, "rate_limit"),
        (_HttpError("429"), None, "exception"),
        (_HttpError(True), None, "exception"),
        (httpx.HTTPStatusError("x", request=httpx.Request("GET", "http://x"), response=httpx.Response(503)), 503, "upstream_error"),
        (None, None, "exception"),
    ],
)  # fmt: skip
def test_categories_by_exception(
    exception: BaseException | None, status: int | None, category: str
) -> None:
    """The status that an exception carries counts before its type."""
    raw = line("chat", b"", ending="exception", exception=exception, status_code=None)
    assert (raw["status_code"], raw["error_category"]) == (status, category)


def test_the_body_that_an_exception_carries_is_the_response() -> None:
    """Where nothing was sent, the engine's error body is in the exception."""
    raw = line(
        "chat",
        b"",
        ending="exception",
        exception=_HttpError(400, b'{"error": 1}'),
        status_code=None,
    )
    assert raw["response"] == {"error": 1}
    unread = httpx.Response(500, stream=httpx.ByteStream(b"x"))
    error = httpx.HTTPStatusError("x", request=httpx.Request("GET", "http://x"), response=unread)
    assert line("chat", b"", ending="exception", exception=error)["response"] is None


@pytest.mark.parametrize(
    ("stream", "category", "terminal"),
    [
        (event("response.completed", response={"id": "r"}), None, "complete"),
        (event("response.incomplete", response={"id": "r"}), "incomplete", "incomplete"),
        (
            event("response.cancelled", response={"id": "r", "status": "cancelled"}),
            "cancelled",
            "incomplete",
        ),
        (event("response.failed", response={"id": "r"}), "upstream_error", "error"),
        (event("response.created", response={"id": "r"}), "stream_truncated", "none"),
        (b"", "stream_truncated", "none"),
    ],
)
def test_categories_by_stream(stream: bytes, category: str | None, terminal: str) -> None:
    """The terminal event decides; without one a successful stream is truncated, a failed one is not."""
    raw = line("responses", stream, streamed=True)
    assert (raw["error_category"], raw["stream"]["terminal"]) == (category, terminal)
    failed = line("responses", stream, streamed=True, status_code=500)
    assert failed["error_category"] == "upstream_error"


@pytest.mark.parametrize(
    ("body", "category", "kept"),
    [
        (b'{"a": 1}', None, None),
        (b"", None, None),
        (b"[1]", "capture_parse_error", "[1]"),
        (b"<html>", "capture_parse_error", "<html>"),
        (b"null", "capture_parse_error", "null"),
    ],
)
def test_bodies_that_are_no_object_are_kept_as_text(
    body: bytes, category: str | None, kept: str | None
) -> None:
    """And a 2xx one that is not empty is `capture_parse_error`."""
    raw = line("chat", body, request=body)
    assert raw["error_category"] == category and raw.get("response_raw") == kept
    assert raw.get("request_raw") == kept


def test_a_stream_without_its_content_type_is_read_as_a_stream() -> None:
    """Some servers send event streams as text/plain, or name no type."""
    stream = b"\r\n: hi\r\n\r\n" + chat(delta(content="a")) + DONE
    for content_type in ("", "text/plain", "application/json"):
        raw = line("chat", stream, response_content_type=content_type)
        assert raw["response"]["choices"][0]["message"]["content"] == "a"
        assert raw["stream"]["terminal"] == "complete" and raw["error_category"] is None


def test_json_in_the_name_of_an_event_stream_is_kept() -> None:
    """An error body under `text/event-stream` is a response all the same."""
    raw = line("chat", b'{"error": {"message": "m"}}', streamed=True, status_code=429)
    assert raw["response"] == {"error": {"message": "m"}} and raw["error_category"] == "rate_limit"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        (b'{"s": "\\ud800x"}', {"s": "\ufffdx"}),
        (b'{"x": NaN, "y": -Infinity}', {"x": None, "y": None}),
        (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", None),
    ],
)
def test_values_that_json_cannot_say_do_not_lose_the_line(body: bytes, shown: Any) -> None:
    """Integers beyond 64 bits, lone surrogates, NaN and deep nesting: a readable line, and the text where it differs."""
    encoded = encode_line(build_raw_record(facts("chat", body, request=body)))
    orjson.loads(encoded)
    raw = json.loads(encoded)
    if shown is None:
        assert "[[[[" in json.dumps(raw["response"])
    else:
        assert raw["response"] == raw["request"] == shown
        assert raw["response_raw"] == raw["request_raw"] == body.decode()
    build_model_call_record(raw, 0)


def test_odd_values_are_written_as_text() -> None:
    """What layers below put in a record is written, whatever it is."""

    class Odd:
        def __str__(self) -> str:
            return "odd"

    notes = {"a": Odd(), "b": {1: {2}}, "c": b"\xff", "d": ("x", Odd())}
    raw = line("chat", b"{}", notes=notes)
    assert (
        raw["a"] == "odd"
        and raw["b"] == {"1": [2]}
        and raw["c"] == "\ufffd"
        and raw["d"] == ["x", "odd"]
    )


def test_a_body_above_the_limit_leaves_head_tail_size_and_digest() -> None:
    """The line stays small; a stream is read as far as head and tail go, its counts included."""
    middle = chat(delta(content="x" * 50)) * 400
    usage = chat(usage={"prompt_tokens": 1, "completion_tokens": 9})
    stream = chat(delta(content="begin")) + middle + usage + DONE
    raw = line("chat", stream, streamed=True, max_body_bytes=4000, terminal="complete")
    cut = raw["response_cut"]
    assert cut == {
        "size_bytes": len(stream),
        "sha256": hashlib.sha256(stream).hexdigest(),
        "head_bytes": 2000,
        "tail_bytes": 2000,
    }
    assert raw["response_raw"].encode() == stream[:2000] + stream[-2000:]
    assert raw["error_category"] is None and raw["stream"]["terminal"] == "complete"
    assert raw["response"]["choices"][0]["message"]["content"].startswith("begin")
    assert raw["response"]["usage"] == {"prompt_tokens": 1, "completion_tokens": 9}
    record = build_model_call_record(raw, 0)
    assert record.response_cut and not record.request_cut and record.tokens_out == 9


def test_a_json_body_above_the_limit_is_no_parse_error() -> None:
    """That it was not read is our doing, not the call's."""
    body = b'{"a": "' + b"x" * 5000 + b'"}'
    raw = line("chat", body, request=body, max_body_bytes=1000)
    assert raw["response"] is None and raw["error_category"] is None
    assert raw["request_cut"]["size_bytes"] == len(body) and len(raw["request_raw"]) == 1000


def test_a_cut_through_a_character_keeps_the_bytes() -> None:
    """Head and tail that are no UTF-8 any more are kept as base64."""
    body = "é".encode() * 1000
    raw = line("chat", body, max_body_bytes=101)
    assert base64.b64decode(raw["response_raw_b64"]) == body[:50] + body[-51:]


@pytest.mark.parametrize("ending", ["returned", "exception", "cancelled", "disconnected"])
def test_an_exchange_without_any_answer_is_recorded(ending: Ending) -> None:
    """No status, no bytes: still a line with a category."""
    raw = line("chat", b"", ending=ending, status_code=None, request=b"", latency_ttft_ms=None)
    assert raw["error_category"] in CATEGORIES and raw["request"] is None


def test_lines_of_the_reference_are_read() -> None:
    """Absent keys are null, unknown ones do not disturb, a wrong type is refused."""
    raw: dict[str, Any] = {
        "model_call_id": "a" * 32,
        "dialect": "chat",
        "model_ref": {"type": "responses_api_models", "name": "policy"},
        "started_at": 1.0,
        "completed_at": 2.0,
        "latency_ms": 1000.0,
        "latency_ttft_ms": 10.0,
        "status_code": 200,
        "error_category": "stream_truncated",
        "request": {"model": "asked"},
        "response": {"choices": [{"message": {"content": "x"}}]},
        "response_raw": "data: {}\n\n",
        "from_the_future": [1],
    }
    record = build_model_call_record(raw, 3)
    assert record.call_index == 3 and record.model == "asked" and record.latency_total_ms == 1000.0
    assert record.model_ref is not None and record.model_ref.name == "policy"
    assert record.streamed and record.stream_terminal == "none"
    assert CaptureRecord.model_validate(raw).model_extra == {"from_the_future": [1]}
    for wrong in ({"started_at": "soon"}, {"status_code": []}, {"model_call_id": 7}):
        with pytest.raises(ValidationError):
            build_model_call_record({**raw, **wrong}, 0)
    assert build_model_call_record({}, 0).model_call_id is None


def test_text_fields_of_other_types_do_not_cost_the_record() -> None:
    """As in the reference: raw text that is no text counts as absent, and the rest of the record is read."""
    odd = {"request_raw": [1], "response_raw": {}, "client_session_id": 3, "rollout_id": 7}
    record = build_model_call_record({"model_call_id": "a", "latency_ms": 2.0, **odd})
    assert record.model_call_id == "a" and record.latency_total_ms == 2.0
    assert (record.request_raw, record.response_raw) == (None, None)
    assert (record.client_session_id, record.rollout_id) == (None, None)


def test_finish_reasons_of_all_choices() -> None:
    """One entry a choice, null where a choice has none; the first that says something is the reason."""
    choices = [{"finish_reason": None}, {"finish_reason": "length"}, {}]
    record = derived("chat", json.dumps({"choices": choices}).encode())
    assert record.finish_reasons == (None, "length", None) and record.finish_reason == "length"


def test_tool_calls_of_chat_and_messages() -> None:
    """Custom and legacy calls, server and MCP tools, arguments that are no JSON."""
    message = {
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
            {"id": "2", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
            {"id": "3", "function": {"name": "g", "arguments": "{oops"}},
            {"id": "4", "function": {"name": "h", "arguments": None}},
        ],
        "function_call": {"name": "old", "arguments": "[1]"},
    }
    chat_calls = derived(
        "chat", json.dumps({"choices": [{"message": message}]}).encode()
    ).tool_calls
    assert chat_calls == [
        {"call_id": "1", "name": "f", "arguments": {"a": 1}},
        {"call_id": "2", "name": "sh", "arguments": {"_raw": "ls"}},
        {"call_id": "3", "name": "g", "arguments": {"_raw": "{oops"}},
        {"call_id": "4", "name": "h", "arguments": {}},
        {"call_id": None, "name": "old", "arguments": [1]},
    ]
    content = [
        {"type": kind, "id": kind, "name": "n", "input": {"x": 1}}
        for kind in ("tool_use", "server_tool_use", "mcp_tool_use")
    ]
    content += [
        {"type": "thinking", "thinking": "a"},
        {"type": "redacted_thinking", "data": "z"},
        {"type": "thinking", "thinking": "b"},
    ]
    record = derived("messages", json.dumps({"content": content}).encode())
    assert [call["call_id"] for call in record.tool_calls] == [
        "tool_use",
        "server_tool_use",
        "mcp_tool_use",
    ]
    assert record.reasoning_content == "a\nb"


def test_reasoning_of_chat_comes_from_the_field_that_has_it() -> None:
    """`reasoning_content`, `reasoning`, details, thinking parts: the first that says something, per choice."""
    thinking = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "d"}]},
        {"type": "text", "text": "x"},
    ]
    messages = [
        {"reasoning_content": "a", "reasoning": "a"},
        {"reasoning_content": "", "reasoning": "b"},
        {"reasoning_details": [{"text": "c"}, {"summary": "C"}, {"data": "z"}]},
        {"content": thinking},
        {"content": "plain <think>no</think>"},
    ]
    body = json.dumps({"choices": [{"message": message} for message in messages]}).encode()
    assert derived("chat", body).reasoning_content == "a\nb\ncC\nd"


def test_error_payloads_in_streams_of_success_are_errors() -> None:
    """An error object in a 200 stream is an upstream error with the object in the response."""
    raw = line(
        "chat", data({"object": "error", "message": "m", "code": 40001}) + DONE, streamed=True
    )
    assert raw["error_category"] == "upstream_error"
    assert raw["response"]["error"] == {"message": "m", "code": 40001}
