"""Turns inside chat messages: taken back where the messages still say the same, portable where not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from otel_gym.replay import Turn, project
from otel_gym.replay.carrier import carrier, history_of
from otel_gym.replay.errors import PreparationError
from otel_gym.replay.gaps import FOREIGN_TURN, PUBLIC_ASSISTANT
from tests.replay.samples import BUNDLE, SCOPE, call, message, reasoning, turn

ARGUMENTS = '{"a":1,"b":1.0}'
CARRIED = turn(
    reasoning(), message("text"), call(ARGUMENTS), call("{}", call_id="call_2", **BUNDLE)
)
Messages = list[dict[str, Any]]


def public_call(call_id: str, arguments: str) -> dict[str, Any]:
    function = {"name": "look", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def output(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def messages() -> Messages:
    """What a framework makes of the turn: a message for each call, its arguments written anew."""
    first = public_call("call_1", json.dumps(json.loads(ARGUMENTS)))
    first["reasoning_items"] = [carrier(CARRIED)]
    return [
        {"role": "user", "content": "hi"},
        first,
        output("call_1"),
        public_call("call_2", "{}"),
        output("call_2"),
        {"role": "user", "content": "and?"},
    ]


def test_an_untouched_turn_comes_back_whole() -> None:
    """The turn takes the place of its calls' messages, and every output follows it."""
    history = history_of(json.loads(json.dumps(messages())))
    assert [entry for entry in history if isinstance(entry, Turn)] == [CARRIED]
    projection = project(history, SCOPE)
    assert projection.gaps == set()
    assert CARRIED.native is not None
    sent = projection.items
    assert sent[1:5] == CARRIED.native
    assert [item.get("call_id") for item in sent[5:7]] == ["call_1", "call_2"]


def change_arguments(sent: Messages) -> None:
    sent[1]["tool_calls"][0]["function"]["arguments"] = '{"a": 1, "b": 1}'


def change_name(sent: Messages) -> None:
    sent[3]["tool_calls"][0]["function"]["name"] = "touch"


def change_id(sent: Messages) -> None:
    sent[1]["tool_calls"][0]["id"] = "call_9"


def drop_second_call(sent: Messages) -> None:
    del sent[3:5]


def add_text(sent: Messages) -> None:
    sent[1]["content"] = "I looked"


def interrupt(sent: Messages) -> None:
    sent.insert(3, {"role": "user", "content": "wait"})


def break_arguments(sent: Messages) -> None:
    sent[3]["tool_calls"][0]["function"]["arguments"] = "{"


@pytest.mark.parametrize(
    "edit",
    [
        change_arguments,
        change_name,
        change_id,
        drop_second_call,
        add_text,
        interrupt,
        break_arguments,
    ],
)
def test_an_edited_message_makes_the_turn_portable(edit: Callable[[Messages], None]) -> None:
    """Where the messages say something else, their own calls are sent and no native item is."""
    sent = copy.deepcopy(messages())
    edit(sent)
    projection = project(history_of(sent), SCOPE)
    assert FOREIGN_TURN in projection.gaps
    called = [item for item in projection.items if item.get("type") == "function_call"]
    public = [each["tool_calls"][0] for each in sent if each.get("tool_calls")]
    assert [(c["call_id"], c["name"], c["arguments"]) for c in called] == [
        (p["id"], p["function"]["name"], p["function"]["arguments"]) for p in public
    ]
    assert not any("generation_token_ids" in item for item in projection.items)


def test_other_reasoning_items_are_left_alone() -> None:
    """A message without a carrier is a public message, whatever else it carries."""
    plain = public_call("call_1", "{}") | {"reasoning_items": [{"type": "reasoning", "id": "x"}]}
    assert history_of([plain]) == [plain]
    assert project(history_of([plain]), SCOPE).gaps == {PUBLIC_ASSISTANT}


@pytest.mark.parametrize("container", ["", "!", "AAAA", None, carrier(CARRIED)["container"][:-8]])
def test_a_damaged_carrier_fails_the_preparation(container: Any) -> None:
    """A carrier that doesn't verify is never skipped: the error names its message."""
    broken = messages()
    broken[1]["reasoning_items"][0]["container"] = container
    with pytest.raises(PreparationError) as caught:
        history_of(broken)
    assert (caught.value.index, caught.value.field) == (1, "reasoning_items")
