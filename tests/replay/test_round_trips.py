"""Exactness: any items with any arrays come back as they were captured, by every way there is."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gym.replay import (
    HistoryStore,
    capture_turn,
    project,
    read_archive,
    restore,
    snapshot,
    write_archive,
)
from otel_gym.replay.errors import CaptureError, ContainerError
from otel_gym.replay.json_values import dump_json
from tests.replay.samples import BUNDLE, SCOPE, items, json_values, message, response, same_json

histories = st.lists(st.lists(items(), max_size=3), max_size=3)


@given(histories, st.booleans(), st.dictionaries(st.text(max_size=3), json_values, max_size=2))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_items_round_trip(
    outputs: list[list[dict[str, Any]]], from_bytes: bool, extra: dict[str, Any]
) -> None:
    """Through turn, snapshot, SQLite, JSON archive and projection, each item's JSON value is the captured one."""
    captured: list[Any] = []
    for output in outputs:
        answer = response(*output)
        captured.append(capture_turn(dump_json(answer) if from_bytes else answer, SCOPE))
        captured.append({"role": "user", "content": [extra]})
    expected = [item for output in outputs for item in output]
    with tempfile.TemporaryDirectory() as folder, HistoryStore(Path(folder) / "h.db") as store:
        store.checkpoint("r", captured)
        stored = store.load("r")
    restored = restore(snapshot(captured))
    for history in (
        captured,
        restored,
        stored,
        read_archive(write_archive(captured)),
        restore(snapshot(restored)),
    ):
        assert history == captured
        turns = [entry for entry in history if not isinstance(entry, dict)]
        assert same_json([item for turn in turns for item in turn.native], expected)
        projection = project(turns, SCOPE)
        assert not projection.gaps
        assert same_json(projection.items, expected)
        assert same_json(json.loads(projection.to_json()), expected)
    assert snapshot(restored) == snapshot(captured)


@given(histories, st.floats(0, 1, exclude_max=True), st.integers(1, 255))
@settings(deadline=None)
def test_any_flipped_byte_of_any_container_is_detected(
    outputs: list[list[dict[str, Any]]], place: float, change: int
) -> None:
    """Whatever a container holds, no single byte of it can change unseen."""
    container = bytearray(snapshot([capture_turn(response(*output), SCOPE) for output in outputs]))
    container[int(place * len(container))] ^= change
    with pytest.raises(ContainerError):
        restore(container)


@given(items())
@settings(deadline=None)
def test_lists_and_bytes_make_the_same_turn(item: dict[str, Any]) -> None:
    """A response as an object and as its bytes, compact or spread out, makes equal turns."""
    answer = response(item)
    from_lists = capture_turn(answer, SCOPE)
    assert capture_turn(dump_json(answer), SCOPE) == from_lists
    assert capture_turn(json.dumps(answer, indent=1).encode(), SCOPE) == from_lists


def test_from_bytes_no_list_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capturing bytes, snapshot, restore and wire text never turn a column into a list or its text into values."""
    text = dump_json(response(message(**BUNDLE, routed_experts=[[[1, 2]] * 4] * 300)))

    def refuse(*_: object) -> None:
        raise AssertionError("a list was made")

    monkeypatch.setattr("otel_gym.replay.columns.Column.to_list", refuse)
    monkeypatch.setattr("otel_gym.replay.native.column_from_list", refuse)
    turn = capture_turn(text, SCOPE)
    assert turn.native_items is not None
    assert [column.dtype for column in turn.native_items.columns] == ["<u4", "<u1", "<f8", "<u1"]
    assert len(turn.native_items.head) < 600
    (back,) = restore(snapshot([turn]))
    assert project([back], SCOPE).to_json() == dump_json(json.loads(text)["output"])


def test_later_changes_do_not_reach_a_turn() -> None:
    """A turn keeps nothing of the objects it was captured from, and hands out new ones each time."""
    answer = copy.deepcopy(response(message(**BUNDLE)))
    turn = capture_turn(answer, None)
    answer["output"][0]["prompt_token_ids"].append(9)
    answer["output"][0]["content"][0]["text"] = "changed"
    native = turn.native
    assert native is not None
    assert native[0]["prompt_token_ids"] == BUNDLE["prompt_token_ids"]
    native[0]["content"].clear()
    assert turn.content == "hello"
    assert turn.native != native


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        (b"{", "response"),
        (b'{"output": [{"type": "message", "generation_log_probs": [NaN]}]}', "response"),
        (b'{"output": [{"type": "message", "generation_log_probs": [1e999]}]}', "response.output"),
        (b'{"output": {}}', "response.output"),
        (b'{"output": [1]}', r"response.output\[0\]"),
        (b"[]", "response"),
        (b"\xff", "response"),
        ({"output": [{"generation_log_probs": [float("nan")]}]}, "response.output"),
        ({"output": [{"generation_log_probs": [0.5, float("inf")]}]}, "response.output"),
        ({"output": [{"x": b"bytes"}]}, "response.output"),
        ({"output": None}, "response.output"),
        (7, "response"),
    ],
)
def test_what_cannot_be_kept_exactly_is_refused(answer: Any, place: str) -> None:
    """Non-finite numbers and answers without an item list raise CaptureError naming the field."""
    with pytest.raises(CaptureError, match=place):
        capture_turn(answer, SCOPE)


def test_a_record_of_our_store_is_captured() -> None:
    """A captured call's record makes the same turn as its response, and none without a response."""

    class Record:
        response: dict[str, Any] | None = response(message(**BUNDLE))

    assert capture_turn(Record(), SCOPE) == capture_turn(response(message(**BUNDLE)), SCOPE)
    Record.response = None
    with pytest.raises(CaptureError, match="no parsed response"):
        capture_turn(Record(), SCOPE)


def test_a_marked_string_cannot_be_forged() -> None:
    """A model that writes what looks like a column mark gets its own string back."""
    marked = capture_turn(response(message(**BUNDLE)), SCOPE)
    assert marked.native_items is not None
    hostile = message(marked.native_items.mark + "0", routed_experts=marked.native_items.mark + "0")
    for answer in (response(hostile), dump_json(response(hostile))):
        assert capture_turn(answer, SCOPE).native == [hostile]


FIELD = b'{"output":[{"type":"message","role":"assistant","routed_experts":'


@pytest.mark.parametrize("size", [10, 255, 256, 300, 4000])
@pytest.mark.parametrize("cut", [b'"' + b"A" * 5000, b"[" + b"[1,2]," * 900, b"[" + b"1.5," * 1300])
def test_an_answer_cut_inside_an_array_is_refused(cut: bytes, size: int) -> None:
    """A response that ends inside a string or list of experts raises CaptureError, however long it is."""
    with pytest.raises(CaptureError, match="not JSON"):
        capture_turn(FIELD + cut[:size], SCOPE)


@pytest.mark.parametrize(
    "written",
    [
        '"routed_experts":"nrlre1:int8:1x1x300:' + "A" * 400 + '"',
        '"routed_experts":"nrlre1:int8:1x1x300:' + "A" * 398 + r'\u0041\u0041"',
        r'"routed\u005fexperts":"nrlre1:int8:1x1x300:' + "A" * 400 + '"',
    ],
)
def test_equal_items_make_equal_turns_however_they_were_written(written: str) -> None:
    """Escapes in an array's key or string leave the turn as it would be without them."""
    text = FIELD.decode().replace('"routed_experts":', written + "}]}")
    item = json.loads(text)["output"][0]
    assert item["routed_experts"].endswith("A" * 400)
    captured = capture_turn(text.encode(), SCOPE)
    assert captured == capture_turn({"output": [item]}, SCOPE)
    assert captured.columns_of(0)["routed_experts"].dtype == "text"
    assert captured.native == [item]
