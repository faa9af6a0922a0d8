"""Messages streams; what every field becomes is in tests/capture/test_record_faults.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.streams import event, read, response

START = event(
    "message_start",
    message={
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 1},
    },
)
STOP = event("message_stop")


def block(index: int, kind: str, **fields: Any) -> bytes:
    """A block begins."""
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def delta(index: int, kind: str, **fields: Any) -> bytes:
    """A block goes on."""
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def content(*events: bytes) -> list[Any]:
    """The blocks of a stream."""
    found: list[Any] = response("messages", START, *events, STOP)["content"]
    return found


@pytest.mark.parametrize(
    ("given", "pieces", "expected"),
    [
        ({}, ["", '{"a"', ": 1}"], {"a": 1}),
        ({}, [""], {}),
        ({}, [], {}),
        ({"a": 1}, [], {"a": 1}),
        ({}, ['{"a": "x'], {"_raw": '{"a": "x'}),
        ({}, ["[1]"], [1]),
    ],
)
def test_tool_input_is_parsed_once_it_is_whole(
    given: Any, pieces: list[str], expected: Any
) -> None:
    """From the deltas, from the start where there are none, and as text where it is no JSON."""
    events = [delta(0, "input_json_delta", partial_json=piece) for piece in pieces]
    (tool,) = content(block(0, "tool_use", id="t", name="f", input=given), *events)
    assert tool == {"type": "tool_use", "id": "t", "name": "f", "input": expected}


def test_an_input_at_the_start_and_another_in_deltas_are_both_kept() -> None:
    """The deltas win, the other one is in `unmerged`."""
    reading = read(
        "messages",
        START,
        block(0, "tool_use", input={"a": 1}),
        delta(0, "input_json_delta", partial_json='{"b": 2}'),
        STOP,
    )
    assert reading.response is not None and reading.response["content"][0]["input"] == {"b": 2}
    assert reading.unmerged == [{"path": "content[0].input", "value": {"a": 1}}]


def test_usage_of_both_places_is_merged() -> None:
    """`message_delta` has the last word on what it says; null says nothing."""
    last = event(
        "message_delta",
        delta={"stop_reason": "end_turn", "stop_sequence": None},
        usage={
            "output_tokens": 9,
            "cache_read_input_tokens": None,
            "server_tool_use": {"web_search_requests": 1},
        },
    )
    assert response("messages", START, last, STOP)["usage"] == {
        "input_tokens": 5,
        "cache_read_input_tokens": 2,
        "output_tokens": 9,
        "server_tool_use": {"web_search_requests": 1},
    }


def test_blocks_are_put_in_order_and_interleaved_deltas_stay_apart() -> None:
    """Blocks by index, whatever the order of their events."""
    assert content(
        block(1, "text", text="b"),
        block(0, "text", text=""),
        delta(0, "text_delta", text="a"),
        delta(1, "text_delta", text="B"),
        delta(0, "text_delta", text="A"),
    ) == [{"type": "text", "text": "aA"}, {"type": "text", "text": "bB"}]


def test_a_stream_without_its_beginning_is_read_as_far_as_it_says() -> None:
    """Deltas whose block never started make one; unknown ones are kept."""
    reading = read(
        "messages",
        delta(0, "thinking_delta", thinking="h"),
        delta(1, "text_delta", text="a"),
        delta(2, "unheard_delta", x="a"),
        event("unheard.of", x=1),
        event("content_block_start", index=3, content_block=None),
    )
    assert reading.terminal is None
    assert reading.response == {
        "content": [{"type": "thinking", "thinking": "h"}, {"type": "text", "text": "a"}]
    }
    assert [entry["type"] for entry in reading.unmerged] == [
        "content_block_delta",
        "unheard.of",
        "content_block_start",
    ]


def test_compaction_and_citations_grow() -> None:
    """Blocks that begin with null text, and citations without a list at the start."""
    assert content(
        block(0, "compaction", content=None),
        delta(0, "compaction_delta", content="sum"),
        delta(0, "compaction_delta", content="mary"),
        block(1, "text", text=""),
        delta(1, "citations_delta", citation={"cited_text": "x"}),
    ) == [
        {"type": "compaction", "content": "summary"},
        {"type": "text", "text": "", "citations": [{"cited_text": "x"}]},
    ]


def test_a_second_start_of_a_block_loses_nothing() -> None:
    """The block that it replaces is kept in `unmerged`."""
    reading = read("messages", START, block(0, "text", text="a"), block(0, "text", text="b"), STOP)
    assert reading.response is not None
    assert reading.response["content"] == [{"type": "text", "text": "b"}]
    assert reading.unmerged == [{"path": "content[0]", "value": {"type": "text", "text": "a"}}]
