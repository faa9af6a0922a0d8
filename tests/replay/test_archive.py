"""JSON archives: the reference's form, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_gym.replay import ReplayScope, TextPart, Turn, project, read_archive, write_archive
from otel_gym.replay.errors import ArchiveError
from otel_gym.replay.gaps import FOREIGN_TURN
from tests.replay.samples import BUNDLE, SCOPE, call, hosted, message, reasoning, turn


def test_a_turn_is_the_references_envelope() -> None:
    """The envelope has the reference's class and fields, and each part its kind and complete item."""
    items = [reasoning(), message(**BUNDLE), call(), hosted()]
    (envelope,) = json.loads(write_archive([turn(*items)]))
    assert envelope["__type__"] == "pydantic"
    assert envelope["__class__"] == "nooa.llm_types.LLMResponse"
    data = envelope["data"]
    assert set(data) == {
        "event_type", "id", "metadata", "status", "tag", "timestamp", "parts", "replay_scope",
        "finish_reason", "usage", "model_name", "generation_id", "dynamic_context",
    }  # fmt: skip
    assert data["replay_scope"] == 'nemo-gym/responses/v1:["policy","alias"]'
    assert data["parts"] == [
        {"kind": "reasoning", "text": "because", "native": items[0]},
        {"kind": "text", "text": "hello", "native": items[1]},
        {"kind": "tool_call", "id": "call_1", "name": "look", "arguments": '{"x": 1}', "native": items[2]},
        {"kind": "text", "text": "", "native": items[3]},
    ]  # fmt: skip


def test_a_foreign_archive_is_read() -> None:
    """An envelope with only what the reference needs is a turn, exact in its scope."""
    item = message(**BUNDLE)
    part = {"kind": "text", "text": "hello", "native": item}
    envelope = {
        "__type__": "pydantic",
        "__class__": "nooa.llm_types.LLMResponse",
        "data": {"parts": [part], "replay_scope": str(SCOPE)},
    }
    for text in (json.dumps([envelope]), json.dumps(envelope)):
        projection = project(read_archive(text), SCOPE)
        assert projection.items == [item]
        assert projection.gaps == set()


def test_a_refusal_of_a_foreign_archive_is_found() -> None:
    """Another archive has no field for a refusal: it is read from the item, and the turn stays exact."""
    blocks = [{"type": "output_text", "text": "{}"}, {"type": "refusal", "refusal": "no"}]
    item = message(content=blocks, **BUNDLE)
    archive = json.loads(write_archive([turn(item)]))
    archive[0]["data"]["metadata"] = {}
    (read,) = read_archive(json.dumps(archive))
    assert isinstance(read, Turn)
    assert read.refusal == "no"
    assert project([read], SCOPE).items == [item]


def test_another_clients_scope_is_no_scope() -> None:
    """A scope of some other form makes a turn that is never exact here."""
    archive = json.loads(write_archive([turn(message())]))
    archive[0]["data"]["replay_scope"] = "openai/v1:whatever"
    (read,) = read_archive(json.dumps(archive))
    assert isinstance(read, Turn)
    assert read.scope is None
    assert project([read], SCOPE).gaps == {FOREIGN_TURN}


@pytest.mark.parametrize(
    "made",
    [
        turn(message(content=[{"type": "refusal", "refusal": "no"}])),
        turn(),
        turn(message(), scope=ReplayScope("a", "b")),
        turn(message(), call()).replace_text("edited"),
        Turn(parts=[TextPart("x", refusal="no")]),
    ],
)
def test_every_turn_comes_back_equal(made: Turn) -> None:
    """Refusals, empty turns, edits and other scopes survive an archive."""
    assert read_archive(write_archive([made])) == [made]


def test_messages_stay_messages() -> None:
    """What is no turn is written as it is."""
    messages: list[Any] = [{"role": "user", "content": "x"}, {"type": "item", "n": 2**70}]
    assert read_archive(write_archive(messages)) == messages


def envelope_with(**data: Any) -> str:
    return json.dumps([{"__type__": "p", "__class__": "nooa.llm_types.LLMResponse", "data": data}])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", "not JSON"),
        ("7", "want a list"),
        ("[7]", r"\[0\]: want an object"),
        ('[{"__type__": "pydantic", "__class__": "x.Y", "data": {}}]', r"\[0\]: no envelope"),
        ('[{"__type__": "pydantic"}]', r"\[0\]: no envelope"),
        (envelope_with(), r"\[0\].data.parts"),
        (envelope_with(parts=[1]), r"parts\[0\]: want an object"),
        (envelope_with(parts=[{"kind": "x"}]), r"parts\[0\].kind"),
        (envelope_with(parts=[{"kind": "text"}]), r"parts\[0\].text"),
        (envelope_with(parts=[{"kind": "tool_call", "id": "x"}]), r"parts\[0\].name"),
    ],
)
def test_a_broken_archive_names_the_place(text: str, place: str) -> None:
    """What can't be read raises ArchiveError with the path inside the archive."""
    with pytest.raises(ArchiveError, match=place):
        read_archive(text)


def test_what_cannot_be_told_from_an_envelope_is_not_written() -> None:
    """A message with the envelope's key, or without a JSON value, is refused."""
    with pytest.raises(ArchiveError, match="__type__"):
        write_archive([{"__type__": "x"}])
    with pytest.raises(ArchiveError, match="not a JSON value"):
        write_archive([{"x": object()}])
