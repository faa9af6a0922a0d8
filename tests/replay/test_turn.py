"""Turns: what they say, and what an edit costs them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_gym.replay import (
    HistoryStore,
    HostedPart,
    ReasoningPart,
    ReplayScope,
    TextPart,
    ToolCallPart,
    Turn,
    capture_turn,
    project,
    restore,
    snapshot,
)
from otel_gym.replay.errors import CaptureError
from otel_gym.replay.json_values import MAX_NESTING
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


def test_a_turn_shows_its_parts_in_order() -> None:
    """Parts, text, reasoning and tool calls are those of the items, in their order."""
    made = turn(reasoning("why"), message("one "), call(), hosted(), message("two"))
    assert made.parts == (
        ReasoningPart("why"),
        TextPart("one "),
        ToolCallPart("call_1", "look", '{"x": 1}'),
        HostedPart("web_search_call"),
        TextPart("two"),
    )
    assert made.content == "one two"
    assert made.reasoning == "why"
    assert made.tool_calls == (ToolCallPart("call_1", "look", '{"x": 1}'),)
    assert made.refusal is None
    assert made.usage == {"input_tokens": 3, "output_tokens": 2}


def test_reasoning_shows_content_before_summary() -> None:
    """Readable reasoning is the content where there is some, else the summary; empty parts leave no line."""
    summary = [{"type": "summary_text", "text": "short"}]
    assert turn(reasoning("long", summary=summary)).reasoning == "long"
    assert turn(reasoning(content=None, summary=summary)).reasoning == "short"
    empty = reasoning(content=None, encrypted_content="abc")
    assert turn(reasoning("a"), empty, reasoning("b")).reasoning == "a\nb"


def test_a_refusal_is_no_content() -> None:
    """The words of a refusal are told apart from the text."""
    blocks = [{"type": "output_text", "text": "{}"}, {"type": "refusal", "refusal": "no"}]
    made = turn(message(content=blocks))
    assert made.content == "{}"
    assert made.refusal == "no"


@pytest.mark.parametrize("words", [{"refusal": "no"}, {"refusal": None}, {"refusal": ""}, {}])
def test_a_refusal_counts_whatever_it_says(words: dict[str, Any]) -> None:
    """A refusal block beside text is a refusal, also where its words are empty, null or missing."""
    text = {"type": "output_text", "text": '{"valid": true}'}
    made = turn(message(content=[text, {"type": "refusal", **words}]))
    assert made.refusal == (words.get("refusal") or "")
    assert made.content == '{"valid": true}'
    assert turn(message(content=[text])).refusal is None


@pytest.mark.parametrize("field", ["call_id", "name", "arguments"])
@pytest.mark.parametrize("value", [None, 7, "absent"])
def test_a_call_that_cannot_be_answered_is_unsupported(field: str, value: Any) -> None:
    """A function call without its id, name or argument string is no call of the turn, and is not passed over."""
    item = {**call(), field: value}
    if value == "absent":
        del item[field]
    made = turn(message(), item)
    assert made.tool_calls == ()
    assert made.unsupported_calls == ("function_call",)
    assert made.native == [message(), item]


def nested(depth: int) -> Any:
    """Lists inside each other."""
    value: Any = "]"
    for _ in range(depth):
        value = [value]
    return value


def deeper(frames: int, work: Callable[[], Any]) -> Any:
    """Do some work that many more frames down the stack."""
    return deeper(frames - 1, work) if frames else work()


def test_what_was_captured_is_read_at_any_depth_of_the_stack(tmp_path: Path) -> None:
    """Nesting is refused on capture or never: a deep answer can't make a stored history look damaged."""
    item = message("[" * 5000, extra=nested(MAX_NESTING - 2))
    answer = response(item, usage=None)
    made = capture_turn(answer, SCOPE)
    with HistoryStore(tmp_path / "h.db") as store:
        store.checkpoint("r", [made])
        for work in (
            lambda: made.native,
            lambda: project([made], SCOPE).items,
            lambda: restore(snapshot([made]))[0].native,  # type: ignore[union-attr]
            lambda: store.load("r")[0].native,  # type: ignore[union-attr]
        ):
            assert deeper(500, work) == [item]
    for text in (
        response(message(extra=nested(5000))),
        response(message(extra=nested(MAX_NESTING))),
    ):
        with pytest.raises(CaptureError, match=r"nested more than 200 deep|not a JSON value"):
            capture_turn(text, SCOPE)
    for depth in (MAX_NESTING, 100_000):
        written = b'{"output":[{"x":' + b"[" * depth + b"]" * depth + b"}]}"
        with pytest.raises(CaptureError, match="nested more than 200 deep"):
            capture_turn(written, SCOPE)


def test_the_finish_reason_is_never_invented() -> None:
    """An incomplete response has its own reason, a completed one none."""
    assert turn(message()).finish_reason is None
    cut = response(
        message(), status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    )
    assert capture_turn(cut, None).finish_reason == "max_output_tokens"


def test_a_turn_cannot_be_changed() -> None:
    """Setting or deleting any attribute fails."""
    made = turn(message())
    with pytest.raises(AttributeError, match="immutable"):
        made.scope = None
    with pytest.raises(AttributeError, match="immutable"):
        del made.facts


def test_a_changed_answer_changes_no_turn(tmp_path: Path) -> None:
    """The answer and everything a turn gives out can be changed without changing the turn."""
    answer = response(message(**copy.deepcopy(BUNDLE)), usage={"details": {"cached": 1}})
    made = capture_turn(answer, SCOPE)
    answer["usage"]["details"]["cached"] = 2
    answer["output"][0]["prompt_token_ids"].append(9)
    for given in (made.usage, made.native):
        assert given is not None
    made.usage["details"]["cached"] = 3  # type: ignore[index]
    made.native[0]["prompt_token_ids"].append(9)  # type: ignore[index]
    with HistoryStore(tmp_path / "h.db") as store:
        store.checkpoint("r", [made])
        (loaded,) = store.load("r")
    assert isinstance(loaded, Turn)
    assert loaded.usage == {"details": {"cached": 1}}
    assert loaded.native == [message(**BUNDLE)]


def test_edits_drop_native_scope_and_facts() -> None:
    """Each way of editing gives a turn that no longer claims to be the policy's."""
    made = turn(reasoning(), message("one", **BUNDLE), message("two"))
    for edited in (
        made.replace_text("one two"),
        made.replace_parts(made.parts),
        made.replace_scope(ReplayScope("policy", "other")),
        made.replace_scope(None),
    ):
        assert edited.native is None
        assert edited.scope is None
        assert edited.usage is None
        assert edited.facts.response_id is None
    assert made.replace_text("new").parts == (ReasoningPart("because"), TextPart("new"))
    assert turn(call()).replace_text("x").content == "x"
    assert made.replace_scope(SCOPE) is made


def test_turns_are_equal_by_what_they_hold() -> None:
    """Equal items, scope and facts make equal turns; one different id does not."""
    assert turn(message(**BUNDLE)) == turn(message(**BUNDLE))
    other = {**BUNDLE, "prompt_token_ids": [1, 2, 128_001]}
    assert turn(message(**BUNDLE)) != turn(message(**other))
    assert turn(message(), scope=None) != turn(message())
    assert turn(message()).replace_text("hello") != turn(message())
    assert len({turn(message()), turn(message())}) == 1


def test_a_turn_needs_something_to_say() -> None:
    """A turn without parts and items can't be made."""
    with pytest.raises(ValueError, match="needs parts"):
        Turn(scope=SCOPE)


def test_scopes_have_gyms_string_form() -> None:
    """A scope's text is Gym's, reads back, and nothing else does."""
    scope = ReplayScope("server", 'al"ias')
    assert str(scope) == 'nemo-gym/responses/v1:["server","al\\"ias"]'
    assert ReplayScope.parse(str(scope)) == scope
    for text in ("", "nemo-gym/responses/v1:", 'nemo-gym/responses/v1:["a"]', 'x/v1:["a","b"]'):
        with pytest.raises(ValueError, match="not a replay scope"):
            ReplayScope.parse(text)
    with pytest.raises(ValueError, match="two non-empty names"):
        ReplayScope("", "alias")
