"""Array text in and out: `int_text` and `columns`."""

from __future__ import annotations

import datetime
import gc
import itertools
import json
import uuid
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.replay import (
    HistoryStore,
    capture_turn,
    int_text,
    project,
    read_archive,
    restore,
    snapshot,
    write_archive,
)
from otel_gym.replay.column_making import column_from_list, column_from_text
from otel_gym.replay.columns import Column
from otel_gym.replay.errors import CaptureError
from otel_gym.replay.int_text import parse_int_array
from otel_gym.replay.json_values import dump_json
from tests.replay.samples import (
    BUNDLE,
    SCOPE,
    ids,
    log_probs,
    message,
    regular,
    response,
    same_json,
    turn,
)


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def test_no_text_is_accepted_that_is_not_the_arrays_own() -> None:
    """Of all texts of up to eight of the bytes that matter, those accepted are the array's own JSON."""
    accepted = 0
    for length in range(1, 9):
        for characters in itertools.product("[],01-" if length < 8 else "[],0-", repeat=length):
            text = "".join(characters)
            array = parse_int_array(text.encode())
            if array is not None:
                assert compact(array.tolist()).decode() == text
                accepted += 1
    assert accepted > 100


@pytest.mark.parametrize("chunk_bytes", [32, 100, 1 << 17])
@pytest.mark.parametrize("high", [10, 256, 1000, 100_000, 2**59])
@pytest.mark.parametrize("shape", [(300,), (40, 5), (20, 4, 3), (5, 1, 7), (9, 6, 1), (2, 2, 2, 3)])
def test_regular_arrays_are_read_whole(
    shape: tuple[int, ...], high: int, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A regular array is read exactly, wherever the text is cut and with white space between."""
    monkeypatch.setattr(int_text, "_CHUNK_BYTES", chunk_bytes)
    values = np.random.default_rng(1).integers(-1 if high == 1000 else 0, high, shape)
    for text in (compact(values.tolist()), json.dumps(values.tolist(), indent=1).encode()):
        array = parse_int_array(text)
        assert array is not None
        assert np.array_equal(array, values)


@pytest.mark.parametrize(
    "text",
    [
        "[]", "[[]]", "[01]", "[1 2]", "[- 1]", "[-0]", "[1.0]", "[1e5]", "[true]", "[null]", "[1,]",
        "[[1],2]", "[[1,2],3]", "[[1,2],[3]]", "[[[1],[2]],[[3]]]", "[1],[2]", "[1]]", "[[1]", "[1]x",
        "[1000,007]", "[1,2-]", "[0-1,,2]", "[,1-2]", "[[1],[2-3],,[4]]", "[--1]", "[1,-]", "[9999999999999999999]", "", "[", "1", '["1"]',
    ],
)  # fmt: skip
def test_everything_else_is_refused(text: str) -> None:
    """Ragged, empty, mixed and malformed lists, and those of more than 18 digits, make no array."""
    assert parse_int_array(text.encode()) is None


@pytest.mark.parametrize("dtype", ["<u1", "<u2", "<u4", "<i1", "<i2", "<i4", "<i8", ">i2"])
@pytest.mark.parametrize("shape", [(64, 8, 8), (300,), (1, 300, 1), (7, 64)])
def test_arrays_are_written_as_json_does(shape: tuple[int, ...], dtype: str) -> None:
    """A column's text is the compact JSON of its list, for every type and in either byte order."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    array = np.random.default_rng(2).integers(low, high, shape, endpoint=True).astype(dtype)
    assert b"".join(Column(array).json_pieces()) == compact(array.tolist())


@given(st.one_of(ids, log_probs, regular()))
def test_a_column_is_its_list(values: list[Any]) -> None:
    """From the list or from its text, a column gives the same list and text back, or there is none."""
    for column in (column_from_list(values), column_from_text(compact(values))):
        if column is not None:
            assert same_json(column.to_list(), values)
            assert same_json(json.loads(b"".join(column.json_pieces())), values)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0, 255], "<u1"), ([0, 256], "<u2"), ([-1, 127], "<i1"), ([-1, 128], "<i2"),
        ([-1, 2**31 - 1], "<i4"), ([0, 2**32 - 1], "<u4"), ([0, 2**32], "<i8"), ([0.5], "<f8"),
    ],
)  # fmt: skip
def test_the_smallest_type_is_taken(values: list[Any], dtype: str) -> None:
    """A column has the smallest type that holds all its values."""
    column = column_from_list(values)
    assert column is not None
    assert column.dtype == dtype


@pytest.mark.parametrize("values", [[], [1, 1.0], [True, 1], [2**63], [None], ["1"], [[1.5]]])
def test_what_cannot_be_a_column_is_none(values: list[Any]) -> None:
    """Mixed kinds, booleans, too wide integers and empty lists stay JSON."""
    assert column_from_list(values) is None
    assert column_from_text(compact(values)) is None


def test_long_float_lists_are_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Floats are the same wherever their text is cut, and a cut never hides an empty place."""
    monkeypatch.setattr("otel_gym.replay.column_making._FLOAT_PIECE_BYTES", 7)
    values = np.random.default_rng(4).standard_normal(200).tolist()
    column = column_from_text(compact(values))
    assert column is not None
    assert same_json(column.to_list(), values)
    for text in (b"[1.5,,2.5]", b"[1.5,2.5,]", b"[,1.5]", b"[1.5,1e999]"):
        assert column_from_text(text) is None


class Node:
    """Part of a cycle."""

    itself: Node | None = None


def test_many_new_lists_are_not_visited_by_the_next_collection() -> None:
    """Lists made from a column count as old at once, young garbage does not with them, and what an application has frozen stays frozen."""
    gc.collect()
    column = column_from_list([[number] for number in range(5000)])
    assert column is not None
    garbage = Node()
    garbage.itself = garbage
    alive = weakref.ref(garbage)
    del garbage
    values = column.to_list()
    assert alive() is None
    assert len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=1)) < 2500
    assert gc.isenabled()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        assert column.to_list() == values
        assert gc.get_freeze_count() == frozen > 5000
    finally:
        gc.unfreeze()


LONG = [[[number % 256] * 8] * 4 for number in range(100)]
EXACT_BUT_IRREGULAR: dict[str, list[Any]] = {
    "a null row": [*LONG, None],
    "a ragged row": [*LONG, [[1]]],
    "an empty row": [*LONG, []],
    "mixed kinds": [-0.5] * 300 + [0, None, True],
    "a float row": [[0.5, -0.0, 5e-324, 1e16, 1e-7]] * 100,
    "wide integers": [2**64 - 1, 2**64, -(10**30)] * 100,
    "texts": ["\ud800", "é", "\0", "1"] * 300,
    "objects": [{"offset": 1, "ids": [1, 2]}, {"1": 1.0}] * 100,
}


@pytest.mark.parametrize("values", EXACT_BUT_IRREGULAR.values(), ids=EXACT_BUT_IRREGULAR.keys())
def test_a_long_irregular_list_is_kept_beside_the_head(values: list[Any], tmp_path: Path) -> None:
    """What no typed array can hold is a column of JSON text: equal from list and bytes, and exact by every way back."""
    item = message(**{**BUNDLE, "generation_log_probs": values, "routed_experts": values})
    made = turn(item)
    assert capture_turn(dump_json(response(item)), SCOPE) == made
    assert {made.columns_of(0)[name].dtype for name in list(BUNDLE)[2:]} == {"json"}
    assert made.native_items is not None
    assert len(made.native_items.head) < 600
    with HistoryStore(tmp_path / "h.db") as store:
        store.checkpoint("r", [made])
        stored = store.load("r")
    for history in (stored, restore(snapshot([made])), read_archive(write_archive([made]))):
        assert history == [made]
        projection = project(history, SCOPE)
        assert not projection.gaps
        assert same_json(projection.items, [item])
        assert same_json(json.loads(projection.to_json()), [item])


@pytest.mark.parametrize(
    "wrong", [float("nan"), float("inf"), 1e400, {1, 2}, b"x", [[[]] * 9, float("nan")]]
)
def test_a_long_list_without_exact_text_is_refused(wrong: Any) -> None:
    """What JSON can't say is refused inside long lists too, never written as something else."""
    for values in ([*LONG, wrong], [0.5] * 500 + [wrong], [wrong] * 500):
        with pytest.raises(CaptureError):
            turn(message(routed_experts=values))
    for text in (b"NaN", b"1e400", b"-Infinity", b"1,", b"01", b"[" * 300 + b"]" * 300):
        answer = b'{"output":[{"routed_experts":[' + b"[1,2],[3]," * 300 + text + b"]}]}"
        with pytest.raises(CaptureError):
            capture_turn(answer, SCOPE)


def test_values_that_only_resemble_json_make_no_column() -> None:
    """Tuples, dates and the like are left to the head, which says what it can't hold."""
    for odd in ((1, 2), datetime.date(2026, 11, 30), uuid.UUID(int=1)):
        assert column_from_list([*LONG, odd]) is None
