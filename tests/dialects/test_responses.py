"""Responses streams: rebuilt from events, reconciled with the terminal response."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.streams import data, event, read, response

CREATED = event(
    "response.created", response={"id": "r", "model": "m", "status": "in_progress", "output": []}
)


def added(index: int, item: dict[str, Any]) -> bytes:
    """An item begins."""
    return event("response.output_item.added", output_index=index, item=item)


def done(index: int, item: dict[str, Any]) -> bytes:
    """An item is whole."""
    return event("response.output_item.done", output_index=index, item=item)


def ended(**fields: Any) -> bytes:
    """The terminal event of a completed response."""
    return event("response.completed", response={"id": "r", "status": "completed", **fields})


def item_of(*events: bytes) -> dict[str, Any]:
    """The only item of a truncated stream."""
    (item,) = response("responses", CREATED, *events)["output"]
    found: dict[str, Any] = item
    return found


@pytest.mark.parametrize(
    ("item_type", "kind", "field", "given_as"),
    [
        ("function_call", "response.function_call_arguments", "arguments", "arguments"),
        ("custom_tool_call", "response.custom_tool_call_input", "input", "input"),
        ("mcp_call", "response.mcp_call_arguments", "arguments", "arguments"),
        ("code_interpreter_call", "response.code_interpreter_call_code", "code", "code"),
    ],
)
def test_texts_of_tool_items_are_rebuilt(
    item_type: str, kind: str, field: str, given_as: str
) -> None:
    """From deltas alone, from `.done` alone, with the item's own event and without it."""
    one = event(f"{kind}.delta", output_index=0, item_id="i", delta="a")
    two = event(f"{kind}.delta", output_index=0, item_id="i", delta="b")
    whole = event(f"{kind}.done", output_index=0, item_id="i", **{given_as: "ab"})
    expected = {"type": item_type, "id": "i", field: "ab"}
    assert item_of(added(0, {"type": item_type, "id": "i", field: ""}), one, two) == expected
    assert item_of(one, two) == item_of(whole) == item_of(one, two, whole) == expected


def test_messages_are_rebuilt_part_by_part() -> None:
    """Text with log probabilities and annotations, refusals, several parts and several items."""
    at = {"output_index": 1, "item_id": "m", "content_index": 0}
    output = response(
        "responses",
        CREATED,
        added(0, {"id": "rs", "type": "reasoning", "summary": []}),
        event("response.reasoning_summary_part.added", output_index=0, item_id="rs", summary_index=0, part={"type": "summary_text", "text": ""}),
        event("response.reasoning_summary_text.delta", output_index=0, item_id="rs", summary_index=0, delta="su"),
        event("response.reasoning_summary_text.delta", output_index=0, item_id="rs", summary_index=0, delta="m"),
        event("response.reasoning_text.delta", output_index=0, item_id="rs", content_index=0, delta="deep"),
        added(1, {"id": "m", "type": "message", "role": "assistant", "content": []}),
        event("response.content_part.added", **at, part={"type": "output_text", "text": "", "annotations": []}),
        event("response.output_text.delta", **at, delta="He", logprobs=[{"token": "He"}]),
        event("response.output_text.delta", **at, delta="y", logprobs=[{"token": "y"}]),
        event("response.output_text.annotation.added", **at, annotation_index=0, annotation={"type": "url_citation"}),
        event("response.refusal.delta", **{**at, "content_index": 1}, delta="no"),
    )["output"]  # fmt: skip
    assert output == [
        {
            "id": "rs",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "sum"}],
            "content": [{"type": "reasoning_text", "text": "deep"}],
        },
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": "Hey",
                    "annotations": [{"type": "url_citation"}],
                    "logprobs": [{"token": "He"}, {"token": "y"}],
                },
                {"type": "refusal", "refusal": "no"},
            ],
        },
    ]


def test_hosted_tools_show_how_far_they_came() -> None:
    """Status events move an item's status until the item is done."""
    item = {"type": "web_search_call", "id": "w", "status": "in_progress"}
    searching = event("response.web_search_call.searching", output_index=0, item_id="w")
    assert item_of(added(0, item), searching)["status"] == "searching"
    finished = done(0, {**item, "status": "completed", "action": {"query": "q"}})
    late = event("response.web_search_call.completed", output_index=0, item_id="w")
    assert item_of(added(0, item), finished, late) == {
        **item,
        "status": "completed",
        "action": {"query": "q"},
    }
    unknown = event("response.teleport_call.beaming", output_index=0, item_id="t")
    assert item_of(unknown) == {"type": "teleport_call", "id": "t", "status": "beaming"}


def test_reasoning_parts_as_vllm_sends_them() -> None:
    """`reasoning_part` events belong to a reasoning item's content."""
    part = {"type": "reasoning_text", "text": ""}
    at = {"output_index": 0, "item_id": "r", "content_index": 0}
    assert item_of(
        event("response.reasoning_part.added", **at, part=part),
        event("response.reasoning_text.delta", **at, delta="hm"),
        event("response.reasoning_text.done", **at, text="hm"),
        event("response.reasoning_part.done", **at, part={**part, "text": "hm"}),
    ) == {"type": "reasoning", "id": "r", "content": [{"type": "reasoning_text", "text": "hm"}]}


def test_patches_and_audio_are_rebuilt() -> None:
    """A patch's diff grows inside its operation; audio grows on the response."""
    operation = {"type": "update_file", "path": "a.py", "diff": ""}
    patch = item_of(
        added(0, {"type": "apply_patch_call", "id": "p", "operation": operation}),
        event(
            "response.apply_patch_call_operation_diff.delta",
            output_index=0,
            item_id="p",
            delta="+a",
        ),
        event(
            "response.apply_patch_call_operation_diff.delta",
            output_index=0,
            item_id="p",
            delta="+b",
        ),
    )
    assert patch["operation"] == {**operation, "diff": "+a+b"}
    audio = response(
        "responses",
        CREATED,
        event("response.audio.delta", delta="QQ=="),
        event("response.audio.transcript.delta", delta="a"),
        event("response.audio.transcript.delta", delta="h"),
    )["audio"]
    assert audio == {"data": "QQ==", "transcript": "ah"}


def test_the_terminal_response_is_completed_by_what_only_the_events_said() -> None:
    """An empty terminal output is the streamed one; missing fields of its items come from the events."""
    text = event(
        "response.output_text.delta",
        output_index=0,
        item_id="i",
        content_index=0,
        delta="Hi",
        logprobs=[{"token": "Hi"}],
    )
    item = {"id": "i", "type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    for output in ([], [item], [{"id": "i", "type": "message", "content": []}]):
        reading = read(
            "responses",
            CREATED,
            text,
            done(0, item),
            ended(output=output, usage={"input_tokens": 1}),
        )
        assert reading.terminal == "complete" and reading.response is not None
        (got,) = reading.response["output"]
        assert got["content"] == [
            {"type": "output_text", "text": "Hi", "logprobs": [{"token": "Hi"}]}
        ]
        assert reading.response["status"] == "completed" and reading.response["model"] == "m"


def test_what_contradicts_the_terminal_response_is_kept_beside_it() -> None:
    """The terminal response wins; streamed text that differs and items that it lacks are in `unmerged`."""
    reading = read(
        "responses",
        CREATED,
        event(
            "response.output_text.delta",
            output_index=0,
            item_id="i",
            content_index=0,
            delta="Hullo",
        ),
        done(1, {"id": "x", "type": "from_the_future"}),
        ended(
            output=[
                {
                    "id": "i",
                    "type": "message",
                    "content": [{"type": "output_text", "text": "Hello"}],
                }
            ]
        ),
    )
    assert reading.response is not None and len(reading.response["output"]) == 1
    assert reading.response["output"][0]["content"][0]["text"] == "Hello"
    assert reading.unmerged == [
        {"path": "output[0].content[0].text", "value": "Hullo"},
        {"path": "output[1]", "value": {"id": "x", "type": "from_the_future"}},
    ]


@pytest.mark.parametrize(
    ("kind", "terminal", "status"),
    [
        ("response.completed", "complete", "completed"),
        ("response.incomplete", "incomplete", "incomplete"),
        ("response.cancelled", "incomplete", "cancelled"),
        ("response.failed", "error", "failed"),
    ],
)
def test_every_terminal_keeps_the_partial_output(kind: str, terminal: str, status: str) -> None:
    """Text before an incomplete, cancelled or failed end survives."""
    text = event(
        "response.output_text.delta", output_index=0, item_id="i", content_index=0, delta="Hi"
    )
    error = {"code": "server_error", "message": "m"} if status == "failed" else None
    last = event(kind, response={"id": "r", "status": status, "output": [], "error": error})
    reading = read("responses", CREATED, text, last)
    assert reading.terminal == terminal and reading.error == error and reading.response is not None
    assert reading.response["status"] == status
    assert reading.response["output"][0]["content"][0]["text"] == "Hi"


def test_events_without_places_go_where_they_can_only_belong() -> None:
    """Without `output_index` the item id decides, without both the last item."""
    item = item_of(
        event("response.output_item.added", item={"id": "i", "type": "function_call", "name": "f"}),
        event("response.function_call_arguments.delta", item_id="i", delta="{"),
        event("response.function_call_arguments.delta", delta="}"),
    )
    assert item == {"id": "i", "type": "function_call", "name": "f", "arguments": "{}"}


def test_unknown_events_are_kept() -> None:
    """Unknown types, deltas of a wrong shape and partial images are in `unmerged`; keep-alives are not."""
    image = {"output_index": 0, "partial_image_index": 0, "partial_image_b64": "QQ=="}
    kept = [
        {"type": "response.image_generation_call.partial_image", **image},
        {"type": "response.output_text.delta", "output_index": 0, "delta": 7},
        {"type": "unheard.of", "x": 1},
        {"type": "response.created", "response": None},
        {"type": "response.output_item.added", "item": "x"},
    ]
    reading = read("responses", CREATED, *map(data, kept), event("keepalive", sequence_number=3))
    assert reading.unmerged == kept


def test_an_unbelievable_index_does_not_make_a_long_list() -> None:
    """A content index of a billion is not believed."""
    text = event("response.output_text.delta", output_index=0, content_index=10**9, delta="Hi")
    assert item_of(text)["content"] == [{"type": "output_text", "text": "Hi"}]
