"""Projection: exact or portable, and with which gaps."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from otel_gym.replay import ReplayScope, Turn, project, read_archive, write_archive
from otel_gym.replay.errors import PreparationError
from otel_gym.replay.gaps import FOREIGN_TURN, PUBLIC_ASSISTANT
from tests.replay.samples import (
    BUNDLE,
    SCOPE,
    call,
    hosted,
    message,
    reasoning,
    response,
    turn,
)

SCOPES = {
    "equal": ReplayScope("policy", "alias"),
    "other server": ReplayScope("judge", "alias"),
    "other alias": ReplayScope("policy", "alias-2"),
    "null": None,
}
ITEMS = {
    "message": message(**BUNDLE),
    "reasoning": reasoning(**BUNDLE),
    "function_call": call(**BUNDLE),
    "hosted": hosted(),
}
PUBLIC: dict[str, list[dict[str, Any]]] = {
    "message": [{"role": "assistant", "content": "hello"}],
    "reasoning": [{"role": "assistant", "content": "because"}],
    "function_call": [
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"x": 1}'}
    ],
    "hosted": [],
}
EDITS: dict[str, dict[str, tuple[str, str]]] = {
    "text": {"message": ("text", "bye")},
    "reasoning": {"reasoning": ("text", "so")},
    "call id": {"function_call": ("id", "call_2")},
    "name": {"function_call": ("name", "touch")},
    "arguments": {"function_call": ("arguments", '{"x":1}')},
}


def stale(made: Turn, field: str, value: str) -> Turn:
    """The turn as an archive that was edited outside brings it: new public field, old native items."""
    archive = json.loads(write_archive([made]))
    archive[0]["data"]["parts"][0][field] = value
    (read,) = read_archive(json.dumps(archive))
    assert isinstance(read, Turn)
    assert read.native == made.native
    return read


def edited(made: Turn, field: str, value: str) -> Turn:
    """The turn edited through its own methods."""
    return made.replace_parts([dataclasses.replace(made.parts[0], **{field: value})])


def public_after(kind: str, field: str | None, value: str) -> list[dict[str, Any]]:
    (item,) = PUBLIC[kind]
    key = {"text": "content", "id": "call_id"}.get(field or "", field)
    return [{**item, key: value}] if key else [item]


@pytest.mark.parametrize("kind", ITEMS)
@pytest.mark.parametrize("own", SCOPES)
@pytest.mark.parametrize("wanted", SCOPES)
def test_scope_decides_between_exact_and_portable(own: str, wanted: str, kind: str) -> None:
    """An unchanged turn is exact when both scopes are the same and not null, else portable with the gap."""
    projection = project([turn(ITEMS[kind], scope=SCOPES[own])], SCOPES[wanted])
    if own == wanted != "null":
        assert projection.items == [ITEMS[kind]]
        assert projection.gaps == set()
    else:
        assert projection.items == PUBLIC[kind]
        assert projection.gaps == {FOREIGN_TURN}
    assert json.loads(projection.to_json()) == projection.items


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("way", [edited, stale])
def test_every_edit_makes_a_turn_portable(way: Any, edit: str, scope: str) -> None:
    """An edited field is sent as edited and never with the old items, also where an archive kept them."""
    ((kind, (field, value)),) = EDITS[edit].items()
    changed = way(turn(ITEMS[kind], scope=SCOPES[scope]), field, value)
    projection = project([changed], SCOPES[scope])
    assert projection.items == public_after(kind, field, value)
    assert projection.gaps == {FOREIGN_TURN}


@pytest.mark.parametrize("kind", ITEMS)
def test_an_untouched_archive_stays_exact(kind: str) -> None:
    """A turn that went through an archive unchanged is exact in its scope."""
    read = read_archive(write_archive([turn(ITEMS[kind])]))
    projection = project(read, SCOPE)
    assert projection.items == [ITEMS[kind]]
    assert projection.gaps == set()


def test_an_archive_without_items_is_portable() -> None:
    """A part whose item is missing makes the whole turn portable."""
    archive = json.loads(write_archive([turn(reasoning(), message(**BUNDLE))]))
    archive[0]["data"]["parts"][0]["native"] = None
    projection = project(read_archive(json.dumps(archive)), SCOPE)
    assert projection.items == PUBLIC["reasoning"] + PUBLIC["message"]
    assert projection.gaps == {FOREIGN_TURN}


@pytest.mark.parametrize("missing", list(BUNDLE))
@pytest.mark.parametrize("how", ["absent", "null", "wrong type"])
def test_an_incomplete_bundle_is_portable(missing: str, how: str) -> None:
    """Where any of the arrays is there, the three must be: else the turn claims no exactness."""
    item = message(**BUNDLE, routed_experts=[[[1]]])
    if how == "absent":
        del item[missing]
    else:
        item[missing] = None if how == "null" else "1,2"
    made = turn(item)
    assert made.native == [item]
    projection = project([made], SCOPE)
    assert projection.items == PUBLIC["message"]
    assert projection.gaps == {FOREIGN_TURN}


def test_empty_arrays_and_no_arrays_are_exact() -> None:
    """Empty arrays are a whole bundle; no arrays at all, or only nulls, are none."""
    empty = message(prompt_token_ids=[], generation_token_ids=[], generation_log_probs=[])
    nulls = message(prompt_token_ids=None, routed_experts=None)
    for item in (empty, nulls, message()):
        projection = project([turn(item)], SCOPE)
        assert projection.items == [item]
        assert projection.gaps == set()


def test_a_mixed_history_keeps_its_order() -> None:
    """Turns, public messages, tool outputs and items project in order; system messages become instructions."""
    block = {"type": "input_text", "text": "look"}
    history = [
        {"role": "system", "content": "one"},
        {"role": "user", "content": [block]},
        turn(call(**BUNDLE), hosted()),
        {"role": "tool", "tool_call_id": "call_1", "content": "4"},
        {
            "role": "system",
            "content": [{"type": "text", "text": "t"}, {"type": "text", "text": "wo"}],
        },
        {"type": "function_call_output", "call_id": "call_9", "output": [block], "extra": None},
        turn(message("a"), scope=None),
    ]
    projection = project(history, SCOPE)
    assert projection.instructions == "one\n\ntwo"
    assert projection.items == [
        {"role": "user", "content": [block]},
        call(**BUNDLE),
        hosted(),
        {"type": "function_call_output", "call_id": "call_1", "output": "4"},
        {"type": "function_call_output", "call_id": "call_9", "output": [block], "extra": None},
        {"role": "assistant", "content": "a"},
    ]
    assert json.loads(projection.to_json()) == projection.items
    assert projection.gaps == {FOREIGN_TURN}


@pytest.mark.parametrize(
    ("entry", "items"),
    [
        ({"role": "assistant", "content": "x"}, [{"role": "assistant", "content": "x"}]),
        (
            {
                "role": "assistant",
                "content": "x",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
            [
                {"role": "assistant", "content": "x"},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            ],
        ),
        (message(**BUNDLE), [message(**BUNDLE)]),
        (call(), [call()]),
        (reasoning(), [reasoning()]),
        (hosted(), [hosted()]),
        ({"type": "custom_tool_call", "input": "x"}, [{"type": "custom_tool_call", "input": "x"}]),
    ],
)
def test_public_assistant_words_are_a_gap(entry: dict[str, Any], items: list[Any]) -> None:
    """An assistant's words as a plain dictionary are sent, once recorded however often they occur."""
    projection = project([entry, entry], SCOPE)
    assert projection.items == items * 2
    assert projection.gaps == {PUBLIC_ASSISTANT}


def test_what_a_client_writes_is_no_gap() -> None:
    """Messages of the caller, outputs of any kind of call, and references claim nothing of a policy."""
    entries: list[Any] = [
        {"role": "user", "content": "x"},
        {"type": "message", "role": "developer", "content": "x"},
        {"role": "tool", "tool_call_id": "c", "content": "4"},
        {"type": "function_call_output", "call_id": "c", "output": "4"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "4"},
        {"type": "item_reference", "id": "msg_1"},
    ]
    assert project(entries, SCOPE).gaps == set()


def test_nothing_projects_to_nothing() -> None:
    """An empty history, and turns without items, make an empty list."""
    for history in ([], [turn()], [turn(hosted(), scope=None)]):
        projection = project(history, SCOPE)
        assert projection.items == []
        assert projection.to_json() == b"[]"
        assert projection.instructions is None


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ("text", "type"),
        ({"content": "x"}, "role"),
        ({"role": "robot", "content": "x"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "user", "content": 7}, "content"),
        ({"role": "user", "content": ["x"]}, r"content[0]"),
        ({"role": "assistant", "content": None}, "content"),
        ({"role": "system", "content": [{"type": "image"}]}, r"content[0].text"),
        ({"role": "tool", "content": "x"}, "tool_call_id"),
        ({"role": "tool", "tool_call_id": "c", "content": None}, "content"),
        ({"type": None, "role": "user", "content": "x"}, "type"),
        ({"type": "function_call", "call_id": "c", "name": "f"}, "arguments"),
        ({"type": "function_call_output", "output": "x"}, "call_id"),
        ({"type": "function_call_output", "call_id": "c"}, "output"),
        ({"type": "message", "role": "assistant"}, "content"),
        ({"role": "assistant", "content": None, "tool_calls": {"a": 1}}, "tool_calls"),
        ({"role": "assistant", "content": None, "tool_calls": [1]}, "tool_calls[0]"),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {}}]},
            "tool_calls[0].name",
        ),
        ({"role": "user", "content": "x", "n": float("nan")}, "content"),
    ],
)
def test_malformed_history_names_message_and_field(entry: Any, field: str) -> None:
    """A malformed entry raises PreparationError with its place in the history and the wrong field."""
    with pytest.raises(PreparationError) as caught:
        project([{"role": "user", "content": "fine"}, entry], SCOPE)
    assert (caught.value.index, caught.value.field) == (1, field)


def test_a_turn_is_exact_from_a_response_too() -> None:
    """Unknown fields, nulls and key order of an item reach the next request."""
    item = {"zeta": None, **message(phase="final"), "alpha": {"b": 1, "a": [1.0, 1, -0.0]}}
    projection = project([turn(*response(item)["output"])], SCOPE)
    assert (
        projection.to_json()
        == json.dumps([item], separators=(",", ":"), ensure_ascii=False).encode()
    )
