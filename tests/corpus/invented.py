"""Streams made up after the kinds of the corpus: framing, choices, tool calls, counts, blocks and items, each in an odd way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from otel_gym.dialects import DialectName

Invented = tuple[str, DialectName, bytes]
DONE = b"data: [DONE]\n\n"
COUNTS = {
    "prompt_tokens": 5,
    "completion_tokens": 7,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


def sent(*payloads: Any, named: bool = False) -> bytes:
    """The payloads as events; `named` with the event line that repeats their type."""
    return b"".join(
        (f"event: {payload['type']}\n" if named else "").encode()
        + b"data: "
        + json.dumps(payload, ensure_ascii=False).encode()
        + b"\n\n"
        for payload in payloads
    )


def chunk(delta: Any = None, index: int = 0, finish: str | None = None, **fields: Any) -> Any:
    """A Chat Completions chunk with one choice."""
    logprobs = fields.pop("logprobs", None)
    choice = {
        "index": index,
        "delta": delta or {},
        "logprobs": logprobs,
        "finish_reason": finish,
    }
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [choice], **fields}


def call(index: int, arguments: str | None = None, **fields: Any) -> Any:
    """One entry of a delta's tool calls."""
    name = fields.pop("name", None)
    function = {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}
    return {"index": index, **fields, "function": function}


def token(text: str) -> Any:
    """Log probabilities of one token."""
    one = {"token": text, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": []}
    return {"content": [one], "refusal": None}


TEXT = (
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Héllo "}),
    chunk({"content": "wörld"}),
    chunk({"content": " 🙂"}),
    chunk(finish="stop"),
    chunk(choices=[], usage=COUNTS),
)
TOOLS = (
    chunk({"role": "assistant", "content": None}),
    chunk({"tool_calls": [call(0, "", id="A", type="function", name="f")]}),
    chunk({"tool_calls": [call(1, "", id="B", type="function", name="g")]}),
    chunk({"tool_calls": [call(0, '{"x"')]}),
    chunk({"tool_calls": [call(1, '{"y":')]}),
    chunk({"tool_calls": [call(0, ":1}"), call(1, "2}")]}),
    chunk(finish="tool_calls"),
)
CHOICES = (
    chunk({"role": "assistant", "content": ""}, 0),
    chunk({"role": "assistant", "content": ""}, 1),
    chunk({"content": "a"}, 1, logprobs=token("a")),
    chunk({"content": "b"}, 0, logprobs=token("b")),
    chunk({"content": "c"}, 1, logprobs=token("c")),
    chunk({}, 1, "length"),
    chunk({}, 0, "stop"),
)


def chat() -> Iterator[tuple[str, bytes]]:
    """Chat Completions."""
    plain = sent(*TEXT) + DONE
    yield "CRLF", plain.replace(b"\n", b"\r\n")
    yield "CR only", plain.replace(b"\n", b"\r")
    yield "BOM", b"\xef\xbb\xbf" + plain
    yield "BOM, CRLF", b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n")
    yield "no space after the colon", plain.replace(b"data: ", b"data:")
    yield "no blank line at the end", sent(*TEXT) + b"data: [DONE]"
    yield "DONE twice", plain + DONE
    yield "named events", b"".join(b"event: message\n" + sent(one) for one in TEXT) + DONE
    lines = (json.dumps(one, indent=1).encode().replace(b"\n", b"\ndata: ") for one in TEXT)
    yield "data over several lines", b"".join(b"data: " + one + b"\n\n" for one in lines) + DONE
    counted = ({**one, "usage": {**COUNTS, "total_tokens": n}} for n, one in enumerate(TEXT))
    yield "usage in every chunk", sent(*counted) + DONE
    yield "usage with the finish reason", sent(*TEXT[:4], chunk(finish="stop", usage=COUNTS)) + DONE
    yield "usage without any count", sent(*TEXT[:5], chunk(choices=[], usage={})) + DONE
    yield "id changes", sent(*({**one, "id": f"c{n}"} for n, one in enumerate(TEXT))) + DONE
    yield "finish reason, then null", sent(*TEXT[:5], chunk()) + DONE
    yield "finish reason empty", sent(chunk({"content": "a"}, 0, ""), chunk({}, 0, "stop")) + DONE
    yield "text after the end", sent(*TEXT[:5], chunk({"content": "!"})) + DONE
    halves = ("\ud83d", "\ude42")
    yield (
        "halves of a surrogate pair",
        b"".join(
            b"data: " + json.dumps(chunk({"content": half})).encode() + b"\n\n" for half in halves
        ),
    )
    yield (
        "control characters",
        sent(chunk({"content": 'a\u0000b"\\\n'}), chunk({"content": "\u2028"})),
    )
    thought = chunk({"role": "assistant", "reasoning_content": "th"})
    more = chunk({"reasoning_content": "ink", "content": None})
    yield (
        "reasoning",
        sent(thought, more, chunk({"content": "x", "reasoning_content": None})) + DONE,
    )
    yield "refusal", sent(chunk({"refusal": "I "}), chunk({"refusal": "can not"}), TEXT[4]) + DONE
    whole = {"index": 1, "delta": {"content": "B"}}, {"index": 0, "delta": {"content": "A"}}
    yield "two choices in a chunk", sent(*[chunk(choices=list(whole))] * 2, TEXT[4]) + DONE
    yield "error chunk", sent(*TEXT[:3], {"error": {"message": "boom", "code": 500}}) + DONE
    yield (
        "calls of two choices",
        sent(
            chunk({"tool_calls": [call(0, "{", id="A", type="function", name="f")]}, 0),
            chunk({"tool_calls": [call(0, "[", id="B", type="function", name="g")]}, 1),
            chunk({"tool_calls": [call(0, "}")]}, 0),
            chunk({"tool_calls": [call(0, "]")]}, 1),
        ),
    )
    for number in range(1, len(TOOLS)):
        yield f"tool calls cut after {number}", sent(*TOOLS[:number])
    for number in range(2, len(CHOICES) + 1):
        yield f"choices with logprobs cut after {number}", sent(*CHOICES[:number])


def block(index: int, **fields: Any) -> Any:
    """The start of a content block."""
    return {"type": "content_block_start", "index": index, "content_block": fields}


def grows(index: int, kind: str, **fields: Any) -> Any:
    """A delta of a content block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def ends(stop: str | None = "end_turn", **counts: Any) -> Any:
    """The last delta of a message."""
    delta = {"stop_reason": stop, "stop_sequence": None}
    return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9, **counts}}


START = {
    "type": "message_start",
    "message": {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 3,
            "output_tokens": 1,
        },
    },
}
STOP = {"type": "message_stop"}
SAYS = (block(0, type="text", text=""), grows(0, "text_delta", text="Hé"), {"type": "ping"})
BLOCKS = (
    START,
    block(0, type="thinking", thinking="", signature=""),
    grows(0, "thinking_delta", thinking="hm"),
    grows(0, "signature_delta", signature="s=="),
    block(1, type="redacted_thinking", data="xyz"),
    block(2, type="text", text=""),
    grows(2, "text_delta", text="I call"),
    block(3, type="tool_use", id="t1", name="f", input={}),
    grows(3, "input_json_delta", partial_json=""),
    grows(3, "input_json_delta", partial_json='{"a": "xy"}'),
    block(4, type="tool_use", id="t2", name="g", input={}),
    ends("tool_use"),
)


def messages() -> Iterator[tuple[str, bytes]]:
    """Messages."""
    plain = sent(START, *SAYS, ends(), STOP, named=True)
    yield "CRLF", plain.replace(b"\n", b"\r\n")
    yield "CR only", plain.replace(b"\n", b"\r")
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "m"}}
    yield "error after text", sent(START, *SAYS, error, named=True)
    late = ends(input_tokens=20, cache_read_input_tokens=7, cache_creation_input_tokens=0)
    yield "counts at the end", sent(START, *SAYS, late, STOP, named=True)
    yield "null counts at the end", sent(START, *SAYS, ends(input_tokens=None), STOP, named=True)
    yield "two last deltas", sent(START, *SAYS, ends(None), ends(), STOP, named=True)
    odd = block(0, type="hologram", data="a"), grows(0, "hologram_delta", data="b")
    yield (
        "unknown block",
        sent(START, *odd, block(1, type="text", text="t"), ends(), STOP, named=True),
    )
    yield "unknown event", sent(START, {"type": "flux", "x": 1}, *SAYS, ends(), STOP, named=True)
    uses = [block(n, type="tool_use", id=f"t{n}", name="f", input={}) for n in (0, 1)]
    parts = [grows(n, "input_json_delta", partial_json=p) for p in ('{"a":', "1}") for n in (0, 1)]
    yield "interleaved tools", sent(START, *uses, *parts, ends("tool_use"), STOP, named=True)
    given = block(0, type="tool_use", id="t", name="f", input={"a": 1})
    yield "input at the start", sent(START, given, ends("tool_use"), STOP, named=True)
    for number in range(1, len(BLOCKS) + 1):
        yield f"blocks cut after {number}", sent(*BLOCKS[:number], named=True)


def answer(status: str, *output: Any, **fields: Any) -> Any:
    """A response object."""
    head = {"id": "r1", "object": "response", "created_at": 1, "model": "m", "status": status}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**head, **rest, "output": list(output), "error": None, "usage": None, **fields}


def says(text: str, identity: str = "m1") -> Any:
    """A message item."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": identity, "type": "message", "role": "assistant", "status": "completed"}
    return {**item, "content": [part] if text else []}


def responses() -> Iterator[tuple[str, bytes]]:
    """Responses."""
    counts = {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 6,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 11,
    }
    made = {"type": "response.created", "sequence_number": 0, "response": answer("in_progress")}
    place = {"item_id": "m1", "output_index": 0, "content_index": 0, "sequence_number": 1}
    events = (
        made,
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "sequence_number": 1,
            "item": says(""),
        },
        {
            "type": "response.content_part.added",
            **place,
            "part": says("x")["content"][0] | {"text": ""},
        },
        {"type": "response.output_text.delta", **place, "delta": "Hel", "logprobs": []},
        {"type": "response.output_text.delta", **place, "delta": "lo", "logprobs": []},
    )
    done = answer("completed", says("Hello"), usage=counts)
    end = {"type": "response.completed", "sequence_number": 9, "response": done}
    plain = sent(*events, end, named=True)
    yield "CRLF", plain.replace(b"\n", b"\r\n")
    yield "CR only", plain.replace(b"\n", b"\r")
    yield "no event lines", sent(*events, end)
    yield "BOM", b"\xef\xbb\xbf" + plain
    yield "DONE after the end", plain + DONE
    other = {**end, "response": answer("completed", says("HELLO"), usage=counts)}
    yield "the end has another text", sent(*events, other, named=True)
    why = {"incomplete_details": {"reason": "max_output_tokens"}}
    cut = {
        **end,
        "type": "response.incomplete",
        "response": answer("incomplete", says("Hello"), **why),
    }
    yield "incomplete", sent(*events, cut, named=True)


def invented() -> list[Invented]:
    """All of them."""
    made: tuple[tuple[DialectName, Iterator[tuple[str, bytes]]], ...] = (
        ("chat", chat()),
        ("messages", messages()),
        ("responses", responses()),
    )
    return [(name, dialect, body) for dialect, streams in made for name, body in streams]
