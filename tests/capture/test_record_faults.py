"""The measured faults of the reference capture that touch parsing, one test each, named after the fault."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import zlib
from typing import Any

import brotli
import pytest
import zstandard

from otel_gym.capture.metrics import aggregate_model_call_records
from otel_gym.dialects import DialectName, read_usage
from tests.dialects.facts import derived, line
from tests.dialects.streams import DONE, chat, data, delta, event

CREATED = event(
    "response.created", response={"id": "r1", "model": "m1", "status": "in_progress", "output": []}
)
ITEM = event(
    "response.output_item.added",
    output_index=0,
    item={"id": "i1", "type": "message", "content": []},
)
HEL = event(
    "response.output_text.delta", output_index=0, item_id="i1", content_index=0, delta="Hel"
)
LO = event("response.output_text.delta", output_index=0, item_id="i1", content_index=0, delta="lo")
COMPLETED = event("response.completed", response={"id": "r1", "status": "completed", "output": []})
MESSAGE = event(
    "message_start",
    message={
        "id": "m1",
        "role": "assistant",
        "model": "c",
        "content": [],
        "usage": {"input_tokens": 3},
    },
)
TEXT = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
HI = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hi"})
STOP = event("message_delta", delta={"stop_reason": "end_turn"}) + event("message_stop")
PARTIAL: dict[DialectName, bytes] = {
    "responses": CREATED + ITEM + HEL,
    "chat": chat(delta(role="assistant", content="Hel")),
    "messages": MESSAGE + TEXT + HI,
    "completions": data({"id": "c", "choices": [{"index": 0, "text": "Hel"}]}),
}


def text_of(raw: dict[str, Any]) -> str:
    """The text of a response of any dialect."""
    response = raw["response"]
    if "output" in response:
        found = response["output"][0]["content"][0]["text"]
    elif "choices" in response:
        choice = response["choices"][0]
        found = choice["text"] if "text" in choice else choice["message"]["content"]
    else:
        found = response["content"][0]["text"]
    return str(found)


# --- streams -----------------------------------------------------------------------------------


def test_data_only_streams_are_not_truncated() -> None:
    """Fault: streams without `event:` lines were flagged `stream_truncated`."""
    for dialect, stream in (("responses", CREATED + COMPLETED), ("messages", MESSAGE + STOP)):
        lines = [one for one in stream.split(b"\n") if not one.startswith(b"event:")]
        raw = line(dialect, b"\n".join(lines), streamed=True)  # type: ignore[arg-type]
        assert raw["error_category"] is None and raw["stream"]["terminal"] == "complete"


@pytest.mark.parametrize("ending", [b"data: [DONE]\n", b"data: [DONE]", b"data: [DONE]\r"])
def test_a_last_event_without_a_blank_line_is_not_truncated(ending: bytes) -> None:
    """Fault: `data: [DONE]` at the end of the stream without a blank line was `stream_truncated`."""
    raw = line("chat", PARTIAL["chat"] + ending, streamed=True)
    assert raw["error_category"] is None and text_of(raw) == "Hel"


def test_bare_cr_line_ends_are_read() -> None:
    """Fault: with bare CR line ends the stream was truncated and the response null."""
    raw = line("chat", (PARTIAL["chat"] + DONE).replace(b"\n", b"\r"), streamed=True)
    assert raw["error_category"] is None and text_of(raw) == "Hel"


def test_the_media_type_is_compared_case_insensitively() -> None:
    """Fault: `Text/Event-Stream` was treated as JSON."""
    raw = line("chat", PARTIAL["chat"] + DONE, response_content_type="Text/Event-Stream;X=y")
    assert raw["error_category"] is None and text_of(raw) == "Hel"


def test_a_truncated_responses_stream_is_rebuilt_from_its_deltas() -> None:
    """Fault: a truncated Responses stream had empty output."""
    raw = line("responses", CREATED + ITEM + HEL + LO, streamed=True)
    assert raw["error_category"] == "stream_truncated" and raw["stream"]["terminal"] == "none"
    assert text_of(raw) == "Hello" and raw["response"]["status"] == "in_progress"
    assert derived("responses", CREATED + ITEM + HEL, streamed=True).finish_reason is None


@pytest.mark.parametrize("dialect", PARTIAL)
@pytest.mark.parametrize(
    ("ending", "exception", "category"),
    [
        ("exception", RuntimeError("boom"), "exception"),
        ("exception", ConnectionResetError("gone"), "connection"),
        ("exception", TimeoutError("slow"), "timeout"),
        ("cancelled", asyncio.CancelledError(), "cancelled"),
        ("disconnected", None, "cancelled"),
        ("returned", None, "stream_truncated"),
    ],
)
def test_a_partial_stream_survives_every_ending(
    dialect: DialectName, ending: str, exception: BaseException | None, category: str
) -> None:
    """Fault: an exception or a cancellation never reconstructed the partial stream."""
    raw = line(dialect, PARTIAL[dialect], streamed=True, ending=ending, exception=exception)
    assert raw["error_category"] == category
    assert text_of(raw) in ("Hel", "Hi") and raw["stream"]["terminal"] == "none"
    assert raw["response_raw"] == PARTIAL[dialect].decode()


@pytest.mark.parametrize("dialect", PARTIAL)
def test_a_partial_stream_survives_an_error_event(dialect: DialectName) -> None:
    """Fault: with an error event the partial result, and the error itself, were only in the raw text."""
    error = {"type": "overloaded_error", "message": "later"}
    raw = line(dialect, PARTIAL[dialect] + event("error", error=error), streamed=True)
    assert raw["error_category"] == "upstream_error" and raw["stream"]["terminal"] == "error"
    assert text_of(raw) in ("Hel", "Hi") and raw["response"]["error"] == error


def test_a_client_that_leaves_after_the_terminal_event_is_complete() -> None:
    """Codex and the OpenAI SDK close the connection at the terminal event; nothing is wrong with such a call."""
    for ending in ("disconnected", "cancelled"):
        raw = line(
            "chat", PARTIAL["chat"] + DONE, streamed=True, ending=ending, terminal="complete"
        )
        assert raw["error_category"] is None and raw["stream"]["terminal"] == "complete"


def test_every_choice_of_a_chat_stream_is_kept() -> None:
    """Fault: with n > 1 the texts were merged into one choice."""
    stream = chat(delta(1, content="B")) + chat(delta(0, content="A"), delta(1, content="b")) + DONE
    choices = line("chat", stream, streamed=True)["response"]["choices"]
    assert [(c["index"], c["message"]["content"]) for c in choices] == [(0, "A"), (1, "Bb")]


def test_tool_call_deltas_without_index_do_not_merge() -> None:
    """Fault: tool calls without index were merged into one corrupt call with arguments `{}{}`."""
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    stream = chat(delta(tool_calls=[{"id": "a", **call}, {"id": "b", **call}])) + DONE
    record = derived("chat", stream, streamed=True)
    assert [(c["call_id"], c["arguments"]) for c in record.tool_calls] == [("a", {}), ("b", {})]


def test_a_usage_only_chat_stream_keeps_its_usage() -> None:
    """Fault: a stream with nothing but a usage chunk was null."""
    stream = chat(usage={"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5}) + DONE
    record = derived("chat", stream, streamed=True)
    assert (record.tokens_in, record.tokens_out, record.tokens_total) == (5, 0, 5)


def test_a_null_tool_call_is_skipped() -> None:
    """Fault: a null entry in `tool_calls` made the whole reassembly fail."""
    stream = (
        chat(
            delta(
                content="x", tool_calls=[None, {"index": 0, "id": "a", "function": {"name": "f"}}]
            )
        )
        + DONE
    )
    record = derived("chat", stream, streamed=True)
    assert [c["call_id"] for c in record.tool_calls] == ["a"]
    assert (
        derived(
            "chat", json.dumps({"choices": [{"message": {"tool_calls": [None]}}]}).encode()
        ).tool_calls
        == []
    )


def test_chat_streams_keep_every_field() -> None:
    """Fault: logprobs, token ids, created, system_fingerprint, service_tier, annotations, audio and
    function_call were dropped.
    """
    top = {
        "created": 7,
        "system_fingerprint": "fp",
        "service_tier": "flex",
        "prompt_token_ids": [1, 2],
    }
    first = delta(
        role="assistant", content="a", audio={"id": "au", "data": "QUI=", "transcript": "he"}
    )
    first |= {"logprobs": {"content": [{"token": "a"}]}, "token_ids": [3]}
    second = delta(
        content="b",
        audio={"data": "Q0Q=", "transcript": "y", "expires_at": 9},
        annotations=[{"type": "url_citation"}],
        function_call={"name": "f", "arguments": "{}"},
    )
    second |= {"logprobs": {"content": [{"token": "b"}]}, "token_ids": [4], "routed_experts": [[1]]}
    stream = chat(first, **top) + chat(second, **top) + DONE
    response = line("chat", stream, streamed=True)["response"]
    assert {key: response[key] for key in top} == top
    (choice,) = response["choices"]
    assert choice["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}]}
    assert choice["token_ids"] == [3, 4] and choice["routed_experts"] == [[1]]
    assert choice["message"]["audio"] == {
        "id": "au",
        "data": "QUJDRA==",
        "transcript": "hey",
        "expires_at": 9,
    }
    assert choice["message"]["annotations"] == [{"type": "url_citation"}]
    assert choice["message"]["function_call"] == {"name": "f", "arguments": "{}"}


def test_messages_streams_keep_every_field() -> None:
    """Fault: signatures, citations, server tool input and stop_sequence were dropped."""
    stream = MESSAGE
    for index, (block, *deltas) in enumerate(
        (
            (
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "hm"},
                {"type": "signature_delta", "signature": "si"},
                {"type": "signature_delta", "signature": "g"},
            ),
            (
                {"type": "text", "text": "", "citations": []},
                {"type": "citations_delta", "citation": {"cited_text": "x"}},
                {"type": "text_delta", "text": "t"},
            ),
            (
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                {"type": "input_json_delta", "partial_json": ""},
                {"type": "input_json_delta", "partial_json": '{"query": '},
                {"type": "input_json_delta", "partial_json": '"q"}'},
            ),
            ({"type": "redacted_thinking", "data": "zz"},),
            (
                {"type": "from_the_future", "x": [1]},
                {"type": "y_delta", "y": "a"},
                {"type": "y_delta", "y": "b"},
            ),
        )
    ):
        stream += event("content_block_start", index=index, content_block=block)
        for one in deltas:
            stream += event("content_block_delta", index=index, delta=one)
        stream += event("content_block_stop", index=index) + event("ping")
    stream += event(
        "message_delta",
        delta={"stop_reason": "stop_sequence", "stop_sequence": "END"},
        usage={"output_tokens": 9, "input_tokens": None},
        context_management={"applied_edits": []},
    )
    response = line("messages", stream + event("message_stop"), streamed=True)["response"]
    assert response["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "t", "citations": [{"cited_text": "x"}]},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
        {"type": "redacted_thinking", "data": "zz"},
        {"type": "from_the_future", "x": [1], "y": "ab"},
    ]
    assert response["stop_sequence"] == "END" and response["stop_reason"] == "stop_sequence"
    assert response["usage"] == {"input_tokens": 3, "output_tokens": 9}
    assert response["context_management"] == {"applied_edits": []}


def test_the_error_of_an_in_band_error_is_in_the_response() -> None:
    """Fault: the error object was only in the raw text."""
    error = {"message": "m", "code": 500}
    raw = line("chat", PARTIAL["chat"] + data({"error": error}) + DONE, streamed=True)
    assert raw["error_category"] == "upstream_error"
    assert raw["response"]["error"] == error and text_of(raw) == "Hel"


def test_a_message_delta_before_message_start_is_kept() -> None:
    """Fault: the stop reason of a `message_delta` before `message_start` was dropped."""
    stream = (
        event("message_delta", delta={"stop_reason": "end_turn"}) + MESSAGE + event("message_stop")
    )
    assert derived("messages", stream, streamed=True).finish_reason == "end_turn"


def test_an_error_event_alone_is_a_response() -> None:
    """Fault: a Responses stream with nothing but `event: error` had no response."""
    raw = line("responses", event("error", code="x", message="m", param=None), streamed=True)
    assert raw["response"] == {"error": {"code": "x", "message": "m", "param": None}}
    assert raw["error_category"] == "upstream_error"


def test_damaged_payloads_are_kept() -> None:
    """Fault: payloads that are no JSON object were skipped silently."""
    raw = line("chat", PARTIAL["chat"] + b"data: {oops\n\ndata: 7\n\n" + DONE, streamed=True)
    assert raw["unmerged"] == [{"data": "{oops"}, {"data": "7"}] and text_of(raw) == "Hel"


# --- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("br", brotli.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("gzip, br", lambda body: brotli.compress(gzip.compress(body))),
    ],
)
def test_compressed_bodies_are_decoded(encoding: str, encode: Any) -> None:
    """Fault: compressed bodies were stored as lossy text that nobody can restore."""
    body = json.dumps({"id": "x", "choices": [{"message": {"content": "é" * 500}}]}).encode()
    raw = line(
        "chat",
        encode(body),
        response_encoding=encoding,
        request=encode(b'{"model": "big"}'),
        request_encoding=encoding,
    )
    assert raw["response"] == json.loads(body) and raw["request"] == {"model": "big"}
    assert not {"response_raw", "response_raw_b64", "request_raw", "request_raw_b64"} & raw.keys()
    stream = PARTIAL["chat"] + DONE
    streamed = line("chat", encode(stream), response_encoding=encoding, streamed=True)
    assert streamed["response_raw"] == stream.decode() and streamed["error_category"] is None


def test_bodies_that_cannot_be_decoded_are_kept_byte_for_byte() -> None:
    """A damaged or unknown encoding leaves the bytes as they came, with the name of the encoding."""
    for encoding in ("gzip", "br", "zstd", "aes128gcm"):
        raw = line("chat", b"\x00\xffnothing", response_encoding=encoding)
        assert base64.b64decode(raw["response_raw_b64"]) == b"\x00\xffnothing"
        assert raw["response_raw_encoding"] == encoding and raw["response"] is None
        assert raw["error_category"] == "capture_parse_error"


def test_a_compressed_stream_that_was_cut_is_read_as_far_as_it_goes() -> None:
    """The part of a cut compressed stream that can be decoded is put together."""
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(PARTIAL["chat"]) + packer.flush(zlib.Z_SYNC_FLUSH)
    raw = line("chat", packed, response_encoding="gzip", streamed=True, ending="cancelled")
    assert text_of(raw) == "Hel" and raw["error_category"] == "cancelled"


def test_an_expanding_body_is_bounded() -> None:
    """A small body that expands beyond the recording limit is kept compressed."""
    bomb = gzip.compress(b'{"a": "' + b"x" * 1_000_000 + b'"}')
    raw = line("chat", bomb, response_encoding="gzip", max_body_bytes=10_000)
    assert raw["response"] is None and base64.b64decode(raw["response_raw_b64"]) == bomb


def test_bytes_that_are_not_utf8_are_kept_byte_for_byte() -> None:
    """Fault: bytes that are not UTF-8 were replaced."""
    body = b'{"a": "\xff\xfe"}'
    raw = line("chat", body, request=b"\xf0\x28")
    assert base64.b64decode(raw["response_raw_b64"]) == body
    assert base64.b64decode(raw["request_raw_b64"]) == b"\xf0\x28" and raw["request"] is None
    stream = PARTIAL["chat"] + b": \xff\n\n" + DONE
    streamed = line("chat", stream, streamed=True)
    assert base64.b64decode(streamed["response_raw_b64"]) == stream and text_of(streamed) == "Hel"


def test_unknown_counts_are_null_not_zero() -> None:
    """Fault: a chat stream without usage looked like one that cost nothing."""
    record = derived("chat", PARTIAL["chat"] + DONE, streamed=True)
    counts = (
        record.tokens_in,
        record.tokens_out,
        record.tokens_total,
        record.cached_tokens,
        record.cache_hit,
    )
    assert counts == (None,) * 5
    assert aggregate_model_call_records([record])["num_calls_without_usage"] == 1


@pytest.mark.parametrize(
    "content", ["<think>\nhm\n</think>\nHi", "  <think>hm</think>", "<think>hm"]
)
def test_reasoning_left_in_the_content_is_recovered(content: str) -> None:
    """Fault: with vLLM's chat endpoint reasoning was null, because it stays in `<think>` tags."""
    body = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
    record = derived("chat", body)
    assert record.reasoning_content == "hm"
    assert record.response is not None
    assert record.response["choices"][0]["message"]["content"] == content


def test_responses_tool_calls_and_reasoning_of_every_kind_are_derived() -> None:
    """Fault: custom, MCP and hosted tool calls and `reasoning.content[]` were not derived."""
    output = [
        {
            "type": "reasoning",
            "summary": [{"text": "s"}],
            "content": [{"type": "reasoning_text", "text": "c"}],
        },
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "custom_tool_call", "call_id": "2", "name": "sh", "input": "ls -l"},
        {"type": "mcp_call", "id": "3", "name": "ask", "arguments": "{}", "server_label": "x"},
        {"type": "web_search_call", "id": "4", "action": {"query": "q"}},
        {"type": "code_interpreter_call", "id": "5", "code": "1+1"},
        {"type": "local_shell_call", "call_id": "6", "action": {"command": ["ls"]}},
        {"type": "function_call_output", "call_id": "1", "output": "x"},
    ]
    record = derived("responses", json.dumps({"output": output, "status": "completed"}).encode())
    assert record.reasoning_content == "s\nc"
    assert [(c["call_id"], c["name"], c["arguments"]) for c in record.tool_calls] == [
        ("1", "f", {"a": 1}),
        ("2", "sh", {"_raw": "ls -l"}),
        ("3", "ask", {}),
        ("4", "web_search", {"query": "q"}),
        ("5", "code_interpreter", {"_raw": "1+1"}),
        ("6", "local_shell", {"command": ["ls"]}),
    ]


def test_a_provider_total_that_contradicts_its_parts_is_kept_and_flagged() -> None:
    """Fault: with Anthropic's cache fields and a provider's total, input and total disagreed silently."""
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 5,
        "output_tokens": 2,
        "total_tokens": 12,
    }
    response = {"content": [], "usage": usage}
    record = derived("messages", json.dumps(response).encode())
    assert (record.tokens_in, record.tokens_out, record.tokens_total) == (45, 2, 12)
    assert record.usage_disagrees == ("total",)
    assert read_usage("messages", response).provider_total == 12
    del usage["total_tokens"]
    consistent = derived("messages", json.dumps(response).encode())
    assert consistent.tokens_total == 47 and consistent.usage_disagrees == ()


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"status": "completed", "output": []}, "completed"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "max_output_tokens",
        ),
        ({"status": "failed"}, "failed"),
        ({"status": "in_progress"}, None),
        ({"status": "queued"}, None),
    ],
)
def test_a_completed_responses_call_has_a_finish_reason(
    response: dict[str, Any], reason: str | None
) -> None:
    """Fault: the finish reason of a completed Responses call was null."""
    assert derived("responses", json.dumps(response).encode()).finish_reason == reason


def test_sums_say_how_much_they_cover() -> None:
    """Fault: partial sums looked complete, and TTFT, errors, tool calls, cache writes and models were missing."""
    with_usage = json.dumps(
        {
            "model": "a",
            "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
            "usage": {"input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 4},
        }
    ).encode()
    records = [
        derived("messages", with_usage),
        derived("messages", MESSAGE + TEXT + HI, streamed=True, latency_ttft_ms=40.0),
        derived("messages", b"", status_code=429, latency_ttft_ms=None, request=b""),
    ]
    sums = aggregate_model_call_records(records)
    assert sums["num_calls"] == 3 and sums["tokens_in"] == 8 and sums["tokens_out"] == 2
    assert sums["calls_with_value"]["tokens_out"] == 1 and sums["num_calls_without_usage"] == 1
    assert sums["errors"] == {"rate_limit": 1, "stream_truncated": 1} and sums["num_errors"] == 2
    assert sums["cache_creation_tokens"] == 4 and sums["num_tool_calls"] == 1
    assert sums["latency_ttft_ms"] == {
        "count": 2,
        "sum": 60.0,
        "min": 20.0,
        "max": 40.0,
        "mean": 30.0,
    }
    assert {name: part["num_calls"] for name, part in sums["by_model"].items()} == {
        "": 1,
        "a": 1,
        "c": 1,
    }
    assert sums["tokens_reasoning"] is None and sums["cached_tokens"] is None


def test_a_synthetic_answer_says_what_it_is() -> None:
    """Fault: an answer that the adapter made itself looked like success."""
    outcome = {
        "upstream_attempted": True,
        "response_source": "local",
        "upstream_status_code": 400,
        "local_response_reason": "context_length_exceeded",
    }
    raw = line("chat", b'{"choices": []}', outcome=outcome)
    assert raw["error_category"] == "context_length_exceeded"
    assert {key: raw[key] for key in outcome} == outcome
