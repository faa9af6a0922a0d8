"""Snapshots: laziness, prompt suffixes, and everything that can be wrong with one."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.replay import Turn, project, restore, restore_file, snapshot, write_archive
from otel_gym.replay.columns import SuffixColumn
from otel_gym.replay.errors import (
    CaptureError,
    ContainerError,
    DamagedContainer,
    ReplayError,
    TruncatedContainer,
    UnsupportedContainer,
)
from tests.replay.samples import BUNDLE, SCOPE, call, hosted, message, reasoning, turn


def history() -> list[Any]:
    """A small history of every kind of entry."""
    experts = [[[1, 2], [3, 4]], [[5, 6], [7, 255]]]
    first = turn(reasoning(), message(**BUNDLE, routed_experts=experts), hosted())
    edited = first.replace_text("edited")
    return [
        {"role": "system", "content": "be kind"},
        first,
        {"type": "function_call_output", "call_id": "call_1", "output": "4"},
        turn(call(**BUNDLE), scope=None),
        edited,
    ]


CONTAINER = snapshot(history())


def test_any_flipped_byte_is_detected() -> None:
    """Each single byte of a container, changed in any of several ways, makes restore refuse it."""
    chosen = random.Random(9)
    for position in range(len(CONTAINER)):
        for change in {1, 0x80, 0xFF, chosen.randrange(1, 256)}:
            damaged = bytearray(CONTAINER)
            damaged[position] ^= change
            with pytest.raises(ContainerError):
                restore(damaged)


@given(st.integers(0, len(CONTAINER) - 1))
@settings(deadline=None)
def test_any_truncation_is_detected(length: int) -> None:
    """A container cut anywhere raises TruncatedContainer saying where."""
    with pytest.raises(TruncatedContainer) as caught:
        restore(CONTAINER[:length])
    assert caught.value.offset_bytes <= length


def test_more_bytes_are_detected() -> None:
    """Bytes after the end are damage."""
    with pytest.raises(DamagedContainer, match="end at byte"):
        restore(CONTAINER + b"\0")


def test_a_newer_container_is_refused() -> None:
    """A container of a later version is not guessed at; the error says what to do."""
    newer = CONTAINER[:8] + struct.pack("<I", 2) + CONTAINER[12:]
    with pytest.raises(UnsupportedContainer, match="version 2 is newer than 1; update otel-gym"):
        restore(newer)


def test_another_file_is_refused() -> None:
    """Bytes that never were a snapshot are not called damaged."""
    with pytest.raises(UnsupportedContainer, match="not a history snapshot"):
        restore(b"PK\x03\x04 something else entirely")


def test_damage_says_where() -> None:
    """The error names the entry and column whose digest differs."""
    damaged = bytearray(CONTAINER)
    column = turn(call(**BUNDLE)).columns_of(0)["prompt_token_ids"]
    damaged[CONTAINER.rindex(column.array.tobytes())] ^= 1
    with pytest.raises(DamagedContainer) as caught:
        restore(damaged)
    assert caught.value.where == "entry 3: column prompt_token_ids"


def test_restored_columns_are_views(tmp_path: Path) -> None:
    """Columns of a memory-mapped file are not copied, and they stay readable when the file object is gone."""
    path = tmp_path / "history.otgh"
    path.write_bytes(CONTAINER)
    entries = restore_file(path)
    assert entries == history()
    first = entries[1]
    assert isinstance(first, Turn)
    column = first.columns_of(1)["routed_experts"].array
    assert column.base is not None
    assert not column.flags.writeable
    path.unlink()
    assert column[1, 1, 1] == 255


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    """An empty file is a truncated snapshot, not a crash."""
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(TruncatedContainer):
        restore_file(tmp_path / "empty")


def test_an_empty_history_has_a_snapshot() -> None:
    """No entries is a history too."""
    assert restore(snapshot([])) == []


def test_a_message_without_json_value_is_refused() -> None:
    """A message that JSON can't hold raises CaptureError naming its place."""
    with pytest.raises(CaptureError, match=r"history\[1\]"):
        snapshot([{"role": "user", "content": "x"}, {"role": "user", "content": {1, 2}}])


def growing(turns: int, step: int = 50) -> list[Turn]:
    """Turns whose prompts each begin with the prompt and answer before."""
    numbers = np.random.default_rng(5)
    prompt = numbers.integers(0, 128_000, 200).tolist()
    made = []
    for _ in range(turns):
        answer = numbers.integers(0, 128_000, step).tolist()
        made.append(
            turn(
                message(
                    prompt_token_ids=prompt,
                    generation_token_ids=answer,
                    generation_log_probs=[-0.5] * step,
                )
            )
        )
        prompt = prompt + answer + numbers.integers(0, 128_000, step).tolist()
    return made


def test_growing_prompts_take_linear_space() -> None:
    """Where each prompt extends the turn before, twice the turns take about twice the bytes."""
    sizes = [len(snapshot(growing(turns))) for turns in (20, 40, 80)]
    assert sizes[2] - sizes[1] < 2.1 * (sizes[1] - sizes[0])


def test_suffixes_resolve_to_the_whole_prompt() -> None:
    """A long chain of suffixes gives every prompt back, and is written as suffixes again."""
    turns = growing(1500, step=4)
    container = snapshot(turns)
    restored = restore(container)
    assert snapshot(restored) == container
    last = restored[-1]
    assert isinstance(last, Turn)
    assert isinstance(last.columns_of(0)["prompt_token_ids"], SuffixColumn)
    assert last.native == turns[-1].native
    assert project(restored[700:702], SCOPE).items == project(turns[700:702], SCOPE).items


def test_a_prompt_equal_to_what_came_before_has_an_empty_suffix() -> None:
    """A prompt that adds nothing is stored as nothing and comes back whole."""
    first = growing(1)[0]
    native = first.native
    assert native is not None
    prompt = native[0]["prompt_token_ids"] + native[0]["generation_token_ids"]
    again = turn({**native[0], "prompt_token_ids": prompt})
    shorter = turn({**native[0], "prompt_token_ids": prompt[:100]})
    turns = [first, again, shorter]
    assert restore(snapshot(turns)) == turns
    assert [t.native for t in restore(snapshot(turns)) if isinstance(t, Turn)] == [
        t.native for t in turns
    ]


def rewritten(container: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A container with another index, its digest and lengths made right again."""
    index_bytes = struct.unpack_from("<Q", container, 16)[0]
    index = json.loads(container[64 : 64 + index_bytes])
    change(index)
    body = json.dumps(index).encode()
    start, old_start = (-(-(64 + size) // 64) * 64 for size in (len(body), index_bytes))
    sections = container[old_start:]
    header = container[:16] + struct.pack("<QQ", len(body), start + len(sections))
    header += hashlib.sha256(body).digest()
    return (header + body).ljust(start, b"\0") + sections


@pytest.mark.parametrize("mark", ["(a+)+$", "column:", "", "column:" + "0" * 32 + ":", None, 7])
def test_a_head_that_does_not_fit_its_columns_is_damage(mark: Any) -> None:
    """A container made with care but with another mark is refused, never searched for it as a pattern."""

    def change(index: dict[str, Any]) -> None:
        index["entries"][3]["mark"] = mark

    with pytest.raises(DamagedContainer, match="entry 3"):
        restore(rewritten(CONTAINER, change))


@pytest.mark.parametrize("value", [None, 7, 1.5, True, [], [1], {}, {"a": 1}, "x", "<u1", 10**30])
def test_an_index_with_any_other_value_is_damage_or_works(value: Any) -> None:
    """Whatever an index says, with digests made right for it: reading raises errors of this tree or nothing."""
    index_bytes = struct.unpack_from("<Q", CONTAINER, 16)[0]
    for place in places(json.loads(CONTAINER[64 : 64 + index_bytes])):

        def change(index: Any, place: tuple[Any, ...] = place) -> None:
            for key in place[:-1]:
                index = index[key]
            index[place[-1]] = value

        try:
            entries = restore(rewritten(CONTAINER, change))
            for turn in (entry for entry in entries if isinstance(entry, Turn)):
                assert turn.content + turn.reasoning + repr([turn, turn.native, turn.usage])
            assert json.loads(project(entries, SCOPE).to_json()) is not None
            assert restore(snapshot(entries)) is not None
            assert write_archive(entries)
        except ReplayError:
            pass


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each value inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in inner:
        yield (*above, key)
        if isinstance(below, dict | list):
            yield from places(below, (*above, key))


def test_a_prompt_that_is_not_the_captured_one_is_refused() -> None:
    """A prompt put together from what it adds must have the digest of the whole one."""

    def change(index: dict[str, Any]) -> None:
        for entry in index["entries"][1:]:
            entry["columns"][0]["digest"] = "0" * 64

    entries = restore(rewritten(snapshot(growing(2)), change))
    with pytest.raises(ReplayError, match="not the one that was captured"):
        project(entries, SCOPE).to_json()
