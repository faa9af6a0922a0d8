"""Ranges, the cursor journal, and what is left over."""

from __future__ import annotations

import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.errors import StoreError
from otel_gym.tracing.cursors import Cursors
from otel_gym.tracing.files import fingerprint, open_capture, read_lines
from otel_gym.tracing.ranges import Ranges
from otel_gym.tracing.scan import capture_sizes, gaps_left
from tests.tracing.records import append, gym_record

URL = "http://127.0.0.1:4318/v1/traces"


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), max_size=30), st.integers(0, 80))
def test_ranges_are_a_set_of_positions(added: list[tuple[int, int]], upto: int) -> None:
    """In whatever order ranges come, the set holds exactly their positions, merged, and `missing` is the rest."""
    ranges = Ranges()
    positions: set[int] = set()
    for start, length in added:
        ranges.add(start, start + length)
        positions.update(range(start, start + length))
    held = list(ranges)
    assert {each for start, end in held for each in range(start, end)} == positions
    assert all(first[1] < second[0] for first, second in pairwise(held))
    missing = {each for start, end in ranges.missing(upto) for each in range(start, end)}
    assert missing == set(range(upto)) - positions
    assert len(ranges) == len(held)
    assert bool(ranges) == bool(held)


def test_a_journal_is_read_back_as_written(tmp_path: Path) -> None:
    """What one process noted, the next one knows; another backend has a journal of its own."""
    cursors = Cursors(tmp_path, URL)
    cursors.done("a.capture.jsonl", "f1", 0, 100)
    cursors.done("a.capture.jsonl", "f1", 200, 300)
    assert Cursors(tmp_path, URL).load() == {}, "nothing is on disk before it is saved"
    cursors.save()
    found = Cursors(tmp_path, URL + "/").load()["a.capture.jsonl"]
    assert found.fingerprint == "f1"
    assert list(found.done) == [(0, 100), (200, 300)]
    assert Cursors(tmp_path, "http://other:4318/v1/traces").load() == {}


def test_a_file_that_begins_anew_forgets_what_was_done(tmp_path: Path) -> None:
    """Ranges of an earlier file of the same name never count for the next one."""
    cursors = Cursors(tmp_path, URL)
    cursors.done("a.capture.jsonl", "f1", 0, 100)
    cursors.done("a.capture.jsonl", "f2", 0, 40)
    cursors.save()
    found = Cursors(tmp_path, URL).load()["a.capture.jsonl"]
    assert (found.fingerprint, list(found.done)) == ("f2", [(0, 40)])


def test_a_torn_or_damaged_line_only_means_sending_again(tmp_path: Path) -> None:
    """A journal that a crash cut off in the middle of a line is read as far as it goes."""
    cursors = Cursors(tmp_path, URL)
    cursors.done("a.capture.jsonl", "f1", 0, 100)
    cursors.save()
    (journal,) = (tmp_path / ".otel-gym" / "cursors").iterdir()
    with journal.open("ab") as file:
        file.write(b'{"no": "range"}\n["a.capture.jsonl","f1",100,2')
    assert list(Cursors(tmp_path, URL).load()["a.capture.jsonl"].done) == [(0, 100)]


def test_a_large_journal_is_rewritten_short(tmp_path: Path) -> None:
    """Thousands of lines about one file become one line, and say the same."""
    cursors = Cursors(tmp_path, URL)
    for first in (0, 10):
        for start in range(first, 1_000_000, 20):
            cursors.done("some-long-rollout-id.capture.jsonl", "f1", start, start + 10)
        cursors.save()
    (journal,) = (tmp_path / ".otel-gym" / "cursors").iterdir()
    before = journal.stat().st_size
    assert list(Cursors(tmp_path, URL).load().popitem()[1].done) == [(0, 1_000_000)]
    assert journal.stat().st_size < before / 1000
    cursors.done("b.capture.jsonl", "f", 0, 5)
    cursors.save()
    assert set(Cursors(tmp_path, URL).load()) == {
        "some-long-rollout-id.capture.jsonl",
        "b.capture.jsonl",
    }


def test_what_cannot_be_written_yet_takes_no_more_memory(tmp_path: Path) -> None:
    """Neighbours that wait for the disk become one range, and a journal that was cut short in the middle of a line loses that line alone."""
    cursors = Cursors(tmp_path, URL)
    for start in range(0, 10_000, 10):
        cursors.done("a.capture.jsonl", "f", start, start + 10)
    cursors.save()
    (journal,) = (tmp_path / ".otel-gym" / "cursors").iterdir()
    assert journal.read_bytes() == b'["a.capture.jsonl","f",0,10000]\n'
    with journal.open("ab") as file:
        file.write(b'\n["b.capture.jsonl","f",0,10]\n["c.capt')
    assert set(Cursors(tmp_path, URL).load()) == {"a.capture.jsonl", "b.capture.jsonl"}


def test_several_processes_share_a_journal(tmp_path: Path) -> None:
    """Writers that know nothing of each other lose none of each other's lines."""

    def write(worker: int) -> None:
        cursors = Cursors(tmp_path, URL)
        for start in range(0, 1000, 10):
            cursors.done(f"{worker}.capture.jsonl", "f", start, start + 10)
            cursors.save()

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Cursors(tmp_path, URL).load()
    assert {name: list(cursor.done) for name, cursor in found.items()} == {
        f"{worker}.capture.jsonl": [(0, 1000)] for worker in range(4)
    }


def test_what_is_left_over(tmp_path: Path) -> None:
    """A directory's gaps are the ranges that the cursor lacks; a file with other first bytes is left over whole."""
    first = append(tmp_path, "1-0", gym_record(1))
    second = append(tmp_path, "1-0", gym_record(2))
    append(tmp_path, "2-0", gym_record(3))
    mark = fingerprint(tmp_path, "1-0")
    assert mark is not None
    cursors = Cursors(tmp_path, URL)
    cursors.done("1-0.capture.jsonl", mark, 0, first.length_bytes)
    cursors.done("2-0.capture.jsonl", "another", 0, 10)
    cursors.save()
    gaps = gaps_left(tmp_path, capture_sizes(tmp_path), cursors.load(), is_own=False, now=0.0)
    assert [(gap.rollout_id, gap.start) for gap in gaps] == [
        ("1-0", second.offset_bytes),
        ("2-0", 0),
    ]


def test_lines_are_read_from_any_record_and_a_torn_one_waits(tmp_path: Path) -> None:
    """Reading begins and ends at given offsets, skips blank lines, marks what is no record, and leaves a torn last line."""
    first = append(tmp_path, "1-0", gym_record(1))
    path = tmp_path / "1-0.capture.jsonl"
    with path.open("ab") as file:
        file.write(b"\n[1, 2]\nnot json\n")
    second = append(tmp_path, "1-0", gym_record(2))
    with path.open("ab") as file:
        file.write(b'{"model_call_id": "torn"')
    file = open_capture(tmp_path, "1-0")
    assert file is not None
    with file:
        lines = list(read_lines(file))
    assert [line.record is None for line in lines] == [False, True, True, False]
    assert (lines[0].offset_bytes, lines[0].length_bytes) == (0, first.length_bytes)
    assert lines[3].offset_bytes == second.offset_bytes
    with path.open("rb") as file:
        (only,) = read_lines(file, first.length_bytes + 1 + 7 + 9)
    assert only.record is not None
    assert only.record["model_call_id"] == second.record["model_call_id"]
    with path.open("rb") as file:
        assert len(list(read_lines(file, 0, first.length_bytes))) == 1


def test_a_packed_file_reads_like_a_plain_one(tmp_path: Path) -> None:
    """Offsets and fingerprint of a compressed file are those of its uncompressed bytes."""
    import zstandard

    for number in range(20):
        append(tmp_path, "1-0", gym_record(number))
    plain = tmp_path / "1-0.capture.jsonl"
    mark = fingerprint(tmp_path, "1-0")
    with plain.open("rb") as file:
        expected = [(line.offset_bytes, line.length_bytes) for line in read_lines(file)]
    (tmp_path / "1-0.capture.jsonl.zst").write_bytes(zstandard.compress(plain.read_bytes()))
    plain.unlink()
    assert fingerprint(tmp_path, "1-0") == mark
    packed = open_capture(tmp_path, "1-0")
    assert packed is not None
    with packed:
        assert [(line.offset_bytes, line.length_bytes) for line in read_lines(packed)] == expected
    packed = open_capture(tmp_path, "1-0")
    assert packed is not None
    with packed:
        lines = list(read_lines(packed, expected[7][0]))
    assert lines[0].offset_bytes == expected[7][0]
    assert lines[0].record is not None


def test_only_regular_files_are_exported(tmp_path: Path) -> None:
    """A link out of the directory and a pipe that never ends are refused at a rollout's path."""
    outside = tmp_path / "outside"
    outside.write_text('{"model_call_id": "x"}\n')
    captures = tmp_path / "captures"
    captures.mkdir()
    (captures / "1-0.capture.jsonl").symlink_to(outside)
    os.mkfifo(captures / "2-0.capture.jsonl")
    for rollout_id in ("1-0", "2-0"):
        with pytest.raises(StoreError):
            open_capture(captures, rollout_id)
