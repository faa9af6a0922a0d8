"""Streams for tests: events as bytes, and hypothesis strategies that make odd ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from otel_gym.dialects import DialectName, StreamReading, TerminalScanner, read_stream

settings.register_profile(
    "steady", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(
    "steady"
)  # the time of one example says more about the machine than about the code

DIALECTS: tuple[DialectName, ...] = ("responses", "chat", "messages", "completions")
DONE = b"data: [DONE]\n\n"


def data(payload: Any) -> bytes:
    """An event with data only."""
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def event(kind: str, **fields: Any) -> bytes:
    """A named event whose payload has its type."""
    return f"event: {kind}\n".encode() + data({"type": kind, **fields})


def chat(*choices: dict[str, Any], **fields: Any) -> bytes:
    """A Chat Completions chunk."""
    return data({"id": "c1", "object": "chat.completion.chunk", "choices": list(choices), **fields})


def delta(index: int = 0, *, finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    """One choice of a chunk."""
    return {"index": index, "delta": fields, "finish_reason": finish_reason}


def read(dialect: DialectName, *events: bytes) -> StreamReading:
    """A stream read whole; read byte by byte it must say the same."""
    whole = b"".join(events)
    reading = read_stream(dialect, [whole])
    scanner = TerminalScanner(dialect)
    for position in range(len(whole)):
        scanner.feed(whole[position : position + 1])
    assert scanner.finish() == reading.terminal
    return reading


def response(dialect: DialectName, *events: bytes) -> dict[str, Any]:
    """The response of a stream that has one."""
    found = read(dialect, *events).response
    assert found is not None
    return found


def message(*events: bytes) -> dict[str, Any]:
    """The message of the only choice of a Chat Completions stream."""
    (choice,) = response("chat", *events)["choices"]
    found: dict[str, Any] = choice["message"]
    return found


_WORDS = (
    "data: [DONE]",
    "[DONE]",
    "response.completed",
    "error",
    "message_stop",
    "hello",
    'a"b\\c',
    "é😀",
    "\n",
    "{",
)
_TYPES = (
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "response.output_text.delta",
    "response.output_item.added",
    "response.output_item.done",
    "response.function_call_arguments.delta",
    "response.created",
    "error",
    "message_stop",
    "message_start",
    "message_delta",
    "content_block_start",
    "content_block_delta",
    "ping",
    "unheard.of",
)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(_WORDS),
    st.text(max_size=8),
)
_keys = st.sampled_from(
    (
        "type", "index", "delta", "choices", "message", "content", "text", "tool_calls", "id", "name",
        "function", "arguments", "usage", "error", "object", "finish_reason", "logprobs", "output_index",
        "content_index", "summary_index", "item_id", "item", "part", "response", "output", "content_block",
        "partial_json", "input", "role", "annotation", "annotation_index", "summary", "token_ids",
        "reasoning_details", "audio", "function_call", "custom",
    )
)  # fmt: skip
values = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=4)),
    max_leaves=12,
)


@st.composite
def payloads(draw: st.DrawFn) -> dict[str, Any]:
    """A payload that looks like one of a dialect, with anything in it."""
    payload = draw(st.dictionaries(_keys, values, max_size=5))
    if draw(st.booleans()):
        payload["type"] = draw(st.sampled_from(_TYPES))
    if draw(st.booleans()):
        payload["choices"] = draw(
            st.lists(
                st.fixed_dictionaries(
                    {"delta": st.dictionaries(_keys, values, max_size=3)},
                    optional={
                        "index": st.one_of(st.integers(0, 2), values),
                        "text": values,
                        "finish_reason": st.sampled_from((None, "stop", "")),
                    },
                ),
                max_size=2,
            )
        )
    return payload


_line_ends = st.sampled_from((b"\n", b"\r\n", b"\r"))


@st.composite
def odd_streams(draw: st.DrawFn) -> bytes:
    """A stream of events in odd framing, possibly cut."""
    out = bytearray(draw(st.sampled_from((b"", b"\xef\xbb\xbf", b"\n"))))
    for _ in range(draw(st.integers(0, 6))):
        end = draw(_line_ends)
        shape = draw(st.integers(0, 5))
        if shape == 0:
            body = draw(
                st.sampled_from((b"[DONE]", b" [DONE] ", b"{", b"null", b"[]", b"\xff\xfe", b""))
            )
        else:
            body = json.dumps(draw(payloads()), ensure_ascii=draw(st.booleans())).encode()
        if draw(st.integers(0, 7)) == 0:
            body = body.replace(b"error", b"\\u0065rror").replace(b"completed", b"c\\u006fmpleted")
        if draw(st.booleans()):
            out += b"event: " + draw(st.sampled_from(_TYPES)).encode() + end
        if draw(st.integers(0, 4)) == 0:
            out += (
                draw(st.sampled_from((b": comment", b"id: 7", b"retry: 10", b"retry:", b"data")))
                + end
            )
        out += draw(st.sampled_from((b"data: ", b"data:"))) + body + end
        if draw(st.integers(0, 5)) == 0:
            out += b"data: " + body + draw(_line_ends)
        out += draw(_line_ends) if draw(st.integers(0, 9)) else b""
    if draw(st.booleans()):
        del out[draw(st.integers(0, len(out))) :]
    return bytes(out)


@st.composite
def chunkings(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    """The stream cut at some places."""
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
