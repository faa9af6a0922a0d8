"""Chat Completions streams: every choice, every tool call, every field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.streams import DONE, chat, data, delta, message, read, response


def calls(*deltas: Any) -> list[Any]:
    """The tool calls of a stream with one delta list a chunk."""
    found: list[Any] = message(*(chat(delta(tool_calls=list(one))) for one in deltas), DONE)[
        "tool_calls"
    ]
    return found


def function(arguments: str | None = None, name: str | None = None) -> dict[str, Any]:
    """A function delta."""
    given = {"name": name, "arguments": arguments}
    return {"function": {key: value for key, value in given.items() if value is not None}}


def test_a_stream_becomes_the_response_of_the_call_without_streaming() -> None:
    """Text is joined, the object renamed, what came once stays, what never came is not invented."""
    reading = read(
        "chat",
        chat(delta(role="assistant", content=""), created=1, model="m", system_fingerprint=None),
        chat(delta(content="Hel"), created=1, model="m", system_fingerprint="fp"),
        chat(delta(content="lo"), created=2, model="m", obfuscation="zz"),
        chat(delta(finish_reason="stop"), usage=None),
        DONE,
    )
    assert reading.terminal == "complete" and reading.events == 5 and reading.unmerged == []
    assert reading.response == {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "system_fingerprint": "fp",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello"},
                "finish_reason": "stop",
            }
        ],
        "usage": None,
    }


def test_interleaved_parallel_tool_calls_stay_apart() -> None:
    """Deltas go to the call with their index, whatever the order."""
    assert calls(
        [{"index": 1, "id": "b", "type": "function", **function("", "g")}],
        [{"index": 0, "id": "a", "type": "function", **function("", "f")}],
        [{"index": 1, **function('{"y"')}, {"index": 0, **function('{"x"')}],
        [{"index": 0, **function(":1}")}, {"index": 1, **function(":2}")}],
    ) == [
        {"id": "a", "type": "function", "function": {"arguments": '{"x":1}', "name": "f"}},
        {"id": "b", "type": "function", "function": {"arguments": '{"y":2}', "name": "g"}},
    ]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param(
            [[{"id": "a", **function("{", "f")}], [{"id": "a", **function("}")}], [{"id": "b", **function("{}", "f")}]],
            [("a", "f", "{}"), ("b", "f", "{}")],
            id="by id",
        ),
        pytest.param(
            [[{"id": "a", **function("", "f")}], [function('{"x"')], [function(":1}")], [{"id": "b", **function("{}", "g")}]],
            [("a", "f", '{"x":1}'), ("b", "g", "{}")],
            id="id only at first",
        ),
        pytest.param(
            [[function("{}", "f")], [function("{}", "f")], [function('{"a"', "g")], [function(":1}")]],
            [(None, "f", "{}"), (None, "f", "{}"), (None, "g", '{"a":1}')],
            id="neither index nor id",
        ),
        pytest.param(
            [[{"index": 0, "id": "a", **function("{}", "f")}], [{"index": 0, "id": "b", **function("{}", "g")}]],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="every call numbered 0",
        ),
        pytest.param(
            [[{"index": 0, "id": "", **function("{}", "f")}], [{"index": 0, "id": "", **function('{"a":1}', "f")}]],
            [("", "f", "{}"), ("", "f", '{"a":1}')],
            id="every call numbered 0, without ids, whole",
        ),
        pytest.param(
            [[{"index": 0, **function("{}", "f")}], [{"index": 0, **function("", "g")}], [{"index": 0, **function("[]")}]],
            [(None, "f", "{}"), (None, "g", "[]")],
            id="every call numbered 0, without ids, in pieces",
        ),
        pytest.param(
            [[{"index": 0, **function("{", "f")}], [{"index": 0, **function("}", "f")}], [{"index": 0, **function("", "f")}]],
            [(None, "f", "{}")],
            id="name repeated without id",
        ),
        pytest.param(
            [[{"index": 0, "id": "a", **function("{", "f")}], [{"index": 0, "id": "a", **function("}", "f")}]],
            [("a", "f", "{}")],
            id="id and name repeated",
        ),
        pytest.param(
            [[{"index": 0, "id": "a", **function("", "get_")}], [{"index": 0, "id": "", **function("{}", "it")}]],
            [("a", "get_it", "{}")],
            id="name in pieces",
        ),
        pytest.param(
            [[{"index": None, "id": "a", **function("{}", "f")}, None, {"id": "b", **function(None, "g")}]],
            [("a", "f", "{}"), ("b", "g", None)],
            id="null index, null entry",
        ),
    ],
)  # fmt: skip
def test_tool_calls_are_told_apart(deltas: Any, expected: Any) -> None:
    """With index, id, both or neither."""
    assert [
        (call.get("id"), call["function"]["name"], call["function"].get("arguments"))
        for call in calls(*deltas)
    ] == expected


def test_an_index_that_is_not_the_position_is_kept() -> None:
    """Calls numbered from 1 keep their numbers."""
    assert [
        call.get("index") for call in calls([{"index": 1, "id": "a"}], [{"index": 2, "id": "b"}])
    ] == [1, 2]


def test_custom_tools_and_the_legacy_function_call_are_joined() -> None:
    """`custom.input` and `function_call.arguments` grow like arguments do."""
    assert calls(
        [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "sh", "input": "l"}}],
        [{"index": 0, "custom": {"input": "s"}}],
    ) == [{"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]
    legacy = message(
        chat(delta(function_call={"name": "f", "arguments": ""})),
        chat(delta(function_call={"arguments": "{}"})),
        DONE,
    )
    assert legacy["function_call"] == {"name": "f", "arguments": "{}"}


def test_reasoning_refusal_and_details_are_joined() -> None:
    """Every field with text grows; reasoning details by their index and type."""
    detail = {"type": "reasoning.text", "index": 0, "format": "f"}
    found = message(
        chat(delta(reasoning="a", reasoning_content="c", refusal="n", reasoning_details=[{**detail, "text": "x"}])),
        chat(delta(reasoning="b", reasoning_content="d", refusal="o", reasoning_details=[{**detail, "text": "y"}])),
        chat(delta(reasoning=None, reasoning_details=[{**detail, "signature": "s"}, {"type": "reasoning.encrypted", "index": 1, "data": "e"}])),
        DONE,
    )  # fmt: skip
    assert found == {
        "reasoning": "ab",
        "reasoning_content": "cd",
        "refusal": "no",
        "reasoning_details": [
            {**detail, "text": "xy", "signature": "s"},
            {"type": "reasoning.encrypted", "index": 1, "data": "e"},
        ],
    }


def test_unknown_fields_of_deltas_grow_by_the_same_rules() -> None:
    """Text is appended at any depth, entries of a list meet by index, what names something is set once."""
    found = message(
        chat(
            delta(
                future={"id": "f", "text": "a", "list": [{"index": 3, "call": {"args": "x"}}]}, n=1
            )
        ),
        chat(
            delta(
                future={"id": "f", "text": "b", "list": [{"index": 3, "call": {"args": "y"}}]}, n=2
            )
        ),
        chat(delta(future=None, n=None)),
        DONE,
    )
    assert found == {
        "future": {"id": "f", "text": "ab", "list": [{"index": 3, "call": {"args": "xy"}}]},
        "n": 2,
    }


def test_content_that_comes_in_parts_is_a_list_of_parts() -> None:
    """Thinking parts and text, as the same server gives them without streaming."""
    think = {"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}
    found = message(
        chat(delta(content="")),
        chat(delta(content=[think])),
        chat(delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "m"}]}])),
        chat(delta(content="Hi")),
        chat(delta(content=" there")),
        DONE,
    )
    assert found["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "Hi there"},
    ]


def test_lists_of_every_chunk_are_extended() -> None:
    """Log probabilities, token ids and expert routes; identical ones in a row too."""
    one = {
        **delta(content="a"),
        "logprobs": {"content": [{"token": "a", "logprob": -0.5}], "refusal": None},
        "token_ids": [7],
    }
    (choice,) = response(
        "chat", chat(one, prompt_token_ids=[1], prompt_logprobs=[None]), chat(one), DONE
    )["choices"]
    assert choice["token_ids"] == [7, 7]
    assert len(choice["logprobs"]["content"]) == 2 and choice["logprobs"]["refusal"] is None


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        ([{"prompt_tokens": 1, "completion_tokens": 1}, {"prompt_tokens": 1, "completion_tokens": 2}], {"prompt_tokens": 1, "completion_tokens": 2}),
        ([{"prompt_tokens": 1}, None], {"prompt_tokens": 1}),
        ([None, {"prompt_tokens": 1}], {"prompt_tokens": 1}),
        ([{"prompt_tokens": 1}, {"prompt_tokens": None, "completion_tokens": 2}], {"prompt_tokens": 1, "completion_tokens": 2}),
        ([None], None),
    ],
)  # fmt: skip
def test_usage_on_several_chunks_is_merged(usages: list[Any], expected: Any) -> None:
    """The last word counts, null never does."""
    stream = [chat(delta(content="a"), usage=usage) for usage in usages]
    assert response("chat", *stream, DONE)["usage"] == expected


def test_a_whole_message_completes_the_deltas() -> None:
    """A chunk with `message` in place of or beside its delta fills what the deltas did not say."""
    done = {
        "index": 0,
        "message": {"role": "assistant", "content": "Hi", "extra": 1},
        "finish_reason": "stop",
    }
    assert message(data({"object": "chat.completion.done", "choices": [done]})) == done["message"]
    reading = read("chat", chat(delta(content="Ho")), data({"choices": [done]}), DONE)
    assert reading.response is not None
    assert reading.response["choices"][0]["message"] == {
        "content": "Ho",
        "role": "assistant",
        "extra": 1,
    }
    assert reading.unmerged == [{"path": "choices.message.content", "value": "Hi"}]


def test_done_early_or_missing() -> None:
    """What comes after `[DONE]` still counts; without it the end is not known."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    early = read("chat", chat(delta(content="a")), DONE, chat(usage=usage))
    assert early.terminal == "complete" and early.response is not None
    assert early.response["usage"] == usage
    missing = read("chat", chat(delta(content="a", finish_reason="stop")))
    assert missing.terminal is None and missing.response is not None


def test_a_stream_of_nothing_has_no_response() -> None:
    """`[DONE]` alone, or comments alone, is no response."""
    assert read("chat", DONE).response is None
    assert read("chat", b": hello\n\n").response is None


def test_odd_chunks_are_kept_not_guessed() -> None:
    """Choices, deltas and lists of a wrong shape, and ids that differ, end in `unmerged`."""
    reading = read(
        "chat",
        chat(delta(content="a")),
        data({"id": "c2", "choices": [7, {"index": 0, "delta": "x"}]}),
        data({"choices": {"a": 1}}),
        chat(delta(tool_calls={"a": 1})),
        DONE,
    )
    assert reading.response is not None and reading.response["id"] == "c1"
    assert [entry["value"] for entry in reading.unmerged] == [7, "x", "c2", {"a": 1}, {"a": 1}]
