"""Message content: its switch, its shapes and its budget."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.correlation.run import Run
from otel_gym.tracing.content import DETAILS_EVENT, REFERENCE
from otel_gym.tracing.encode import encode_span
from otel_gym.tracing.options import ContentMode, SpanOptions
from otel_gym.tracing.span_data import SpanData
from otel_gym.tracing.spans import RecordPlace, span_from_record
from tests.tracing.conformance import assert_conforms
from tests.tracing.records import REQUESTS, RESPONSES, gym_record

CONTENT = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
)
PLACE = RecordPlace("3-1", "3-1.capture.jsonl", 77)
PIXEL_BYTES = b"\x89PNG pixel"
PIXEL = base64.b64encode(PIXEL_BYTES).decode()


def make(
    run: Run, mode: ContentMode = "SPAN_ONLY", max_bytes: int = 65536, **record: Any
) -> SpanData:
    return span_from_record(
        gym_record(**record), PLACE, run, SpanOptions(content=mode, span_max_bytes=max_bytes)
    )


def content(span: SpanData, name: str) -> Any:
    value = span.attributes[name]
    assert isinstance(value, str)
    return orjson.loads(value)


@pytest.mark.parametrize(
    ("mode", "on_span", "on_event"),
    [
        ("NO_CONTENT", False, False),
        ("SPAN_ONLY", True, False),
        ("EVENT_ONLY", False, True),
        ("SPAN_AND_EVENT", True, True),
    ],
)
def test_content_goes_where_it_was_asked_for(
    run: Run, mode: ContentMode, on_span: bool, on_event: bool
) -> None:
    """Without the switch nothing of a message is in a span; with it, JSON text on spans and structured values on events."""
    span = make(run, mode)
    assert any(name in span.attributes for name in CONTENT) is on_span
    events = [event for event in span.events if event.name == DETAILS_EVENT]
    assert bool(events) is on_event
    if on_event:
        messages = events[0].attributes["gen_ai.output.messages"]
        assert messages[0]["parts"][2]["arguments"] == {"at": "picture"}
        assert events[0].attributes["gen_ai.operation.name"] == "chat"
    if not on_span and not on_event:
        assert b"picture" not in encode_span(span)


def test_chat_messages(run: Run) -> None:
    """Roles, reasoning, tool calls with parsed arguments, tool results and definitions of Chat Completions."""
    request = {
        **REQUESTS["chat"],
        "messages": [
            *REQUESTS["chat"]["messages"],
            RESPONSES["chat"]["choices"][0]["message"],
            {"role": "tool", "tool_call_id": "call_1", "content": "A cat."},
        ],
    }
    span = make(run, request=request)
    system, user, assistant, tool = content(span, "gen_ai.input.messages")
    assert system == {"role": "system", "parts": [{"type": "text", "content": "Answer briefly."}]}
    assert user["parts"] == [{"type": "text", "content": "What is in the picture?"}]
    assert [part["type"] for part in assistant["parts"]] == ["reasoning", "text", "tool_call"]
    assert tool["parts"] == [{"type": "tool_call_response", "id": "call_1", "response": "A cat."}]
    (output,) = content(span, "gen_ai.output.messages")
    assert output["finish_reason"] == "tool_call"
    (definition,) = content(span, "gen_ai.tool.definitions")
    assert definition["name"] == "look"
    assert definition["parameters"] == {"type": "object", "properties": {}}


def test_responses_messages(run: Run) -> None:
    """Instructions, items, reasoning summaries, function calls with outputs and server tools of Responses."""
    request = {
        **REQUESTS["responses"],
        "input": [
            {"role": "user", "content": "Hi"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c0", "name": "look", "arguments": "not json"},
            {"type": "function_call_output", "call_id": "c0", "output": "cat"},
            {"type": "web_search_call", "id": "w1", "status": "completed"},
            {"type": "item_reference", "id": "i1"},
        ],
        "tools": [{"type": "function", "name": "look", "parameters": {}}, {"type": "web_search"}],
    }
    span = make(run, dialect="responses", request=request)
    assert content(span, "gen_ai.system_instructions") == [
        {"type": "text", "content": "Answer briefly."}
    ]
    parts = [each["parts"][0] for each in content(span, "gen_ai.input.messages")]
    assert [part["type"] for part in parts] == [
        "text",
        "reasoning",
        "tool_call",
        "tool_call_response",
        "server_tool_call",
        "item_reference",
    ]
    assert parts[2]["arguments"] == "not json"
    (output,) = content(span, "gen_ai.output.messages")
    assert [part["type"] for part in output["parts"]] == ["reasoning", "text", "tool_call"]
    assert [tool["name"] for tool in content(span, "gen_ai.tool.definitions")] == [
        "look",
        "web_search",
    ]


def test_messages_messages(run: Run) -> None:
    """System blocks, thinking, tool use with results and images of Messages."""
    request = {
        **REQUESTS["messages"],
        "messages": [
            {"role": "assistant", "content": RESPONSES["messages"]["content"]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "tu_1",
                        "content": [{"type": "text", "text": "a cat"}],
                    },
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                    },
                    {"type": "redacted_thinking", "data": "xyz"},
                    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
                    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
                ],
            },
        ],
    }
    span = make(run, dialect="messages", request=request)
    assistant, user = content(span, "gen_ai.input.messages")
    assert [part["type"] for part in assistant["parts"]] == ["reasoning", "text", "tool_call"]
    result, image, redacted, server, answer = user["parts"]
    assert result["response"] == "a cat"
    assert image["uri"] == f"sha256:{hashlib.sha256(PIXEL_BYTES).hexdigest()}"
    assert image["size_bytes"] == len(PIXEL_BYTES)
    assert redacted == {"type": "reasoning_encrypted"}
    assert server["name"] == "web_search"
    assert answer["type"] == "server_tool_call_response"
    assert content(span, "gen_ai.output.messages")[0]["finish_reason"] == "tool_call"


def test_images_are_references_in_every_dialect(run: Run) -> None:
    """Inline bytes never stand in a span: only their digest and size; a URL stays a URL."""
    url = f"data:image/png;base64,{PIXEL}"
    chat = {
        **REQUESTS["chat"],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": url}},
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                ],
            }
        ],
    }
    responses = {
        **REQUESTS["responses"],
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": url},
                    {"type": "input_file", "file_id": "f1"},
                ],
            }
        ],
    }
    for dialect, request in (("chat", chat), ("responses", responses)):
        span = make(run, dialect=dialect, request=request)
        first, second = content(span, "gen_ai.input.messages")[0]["parts"]
        assert first["uri"].startswith("sha256:")
        assert first["mime_type"] == "image/png"
        assert second["type"] == ("uri" if dialect == "chat" else "file")
        assert PIXEL.encode() not in encode_span(span)


def test_completions_prompts(run: Run) -> None:
    """Prompts become user messages; token ids are only counted."""
    request = {**REQUESTS["completions"], "prompt": ["Once", [1, 2, 3]]}
    span = make(run, dialect="completions", request=request)
    first, second = content(span, "gen_ai.input.messages")
    assert first["parts"] == [{"type": "text", "content": "Once"}]
    assert second["parts"] == [{"type": "token_ids", "count": 3}]


@pytest.mark.parametrize("mode", ["SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"])
def test_a_ten_megabyte_prompt_fits_the_budget(run: Run, mode: ContentMode) -> None:
    """What does not fit becomes digest, size and pointer; the rest of the conversation stays."""
    big = "x" * 10_000_000
    request = {
        **REQUESTS["chat"],
        "messages": [{"role": "user", "content": big}, {"role": "user", "content": "short"}],
    }
    span = make(run, mode, request=request)
    assert len(encode_span(span)) <= 65536
    assert int(str(span.attributes["otel_gym.content.cut_bytes"])) > 9_900_000
    if mode != "EVENT_ONLY":
        cut, short = content(span, "gen_ai.input.messages")
        (part,) = cut["parts"]
        assert part["type"] == REFERENCE
        assert part["size_bytes"] > 10_000_000
        assert part["record"] == "3-1.capture.jsonl#77"
        original = orjson.dumps({"type": "text", "content": big})
        assert part["sha256"] == hashlib.sha256(original).hexdigest()
        assert short["parts"] == [{"type": "text", "content": "short"}]


def test_a_long_conversation_keeps_its_newest_messages(run: Run) -> None:
    """Thousands of small messages: the last ones stay, one reference stands for all before."""
    messages = [{"role": "user", "content": f"message {number}"} for number in range(4000)]
    span = make(run, request={**REQUESTS["chat"], "messages": messages})
    kept = content(span, "gen_ai.input.messages")
    assert kept[-1]["parts"][0]["content"] == "message 3999"
    assert kept[0]["parts"][0]["type"] == REFERENCE
    assert kept[0]["parts"][0]["messages"] == 4000 - (len(kept) - 1)
    assert len(encode_span(span)) <= 65536


def test_many_tools_keep_their_names(run: Run) -> None:
    """Tool definitions lose description and parameters before they lose their names."""
    tools = [
        {
            "type": "function",
            "function": {"name": f"tool_{number}", "description": "d" * 2000, "parameters": {}},
        }
        for number in range(100)
    ]
    span = make(run, request={**REQUESTS["chat"], "tools": tools})
    names = [tool["name"] for tool in content(span, "gen_ai.tool.definitions")]
    assert names == [f"tool_{number}" for number in range(100)]
    assert len(encode_span(span)) <= 65536


def test_text_that_is_no_unicode_and_deep_nesting_are_noted(run: Run) -> None:
    """Content that cannot be written as JSON is replaced by a note, and the span goes out."""
    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    messages = [
        {"role": "user", "content": "\ud800"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": deep}}],
        },
        {"role": "user", "content": "fine"},
    ]
    span = make(run, "SPAN_AND_EVENT", request={**REQUESTS["chat"], "messages": messages})
    first, second, third = content(span, "gen_ai.input.messages")
    assert first["parts"][0]["type"] == second["parts"][0]["type"] == "unwritable"
    assert third["parts"][0]["content"] == "fine"


TEXT = st.text(max_size=30) | st.integers(0, 3000).map("y".__mul__)
ARGUMENTS = st.recursive(
    st.integers(0, 9) | TEXT | st.none(),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=60,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool"]), "content": TEXT},
            optional={
                "tool_calls": st.lists(
                    st.fixed_dictionaries(
                        {"function": st.fixed_dictionaries({"name": TEXT, "arguments": ARGUMENTS})}
                    ),
                    max_size=3,
                )
            },
        ),
        max_size=12,
    ),
    st.sampled_from(["SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"]),
    st.sampled_from([4096, 6000, 65536]),
)
@settings(max_examples=40, deadline=None)
def test_the_budget_holds_for_any_conversation(
    messages: list[dict[str, Any]], mode: ContentMode, max_bytes: int
) -> None:
    """Whatever is said, the encoded span stays within its budget and its content within its schemas."""
    run = Run(schema=1, run_id="r", created_at=1.0, resource={})
    span = make(run, mode, max_bytes, request={**REQUESTS["chat"], "messages": messages})
    assert len(encode_span(span)) <= max_bytes
    assert_conforms(span)
