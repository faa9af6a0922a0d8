"""The index follows the files and is never believed against them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from otel_gym.capture.layout import Layout
from otel_gym.correlation.trace_ids import trace_id
from otel_gym.counters import counted
from otel_gym.tracing.options import SpanOptions
from otel_gym.viewer.index.database import index_path
from otel_gym.viewer.index.follower import Follower
from otel_gym.viewer.index.indexer import Index
from otel_gym.viewer.index.scan import scan
from otel_gym.viewer.kept import Kept
from tests.viewer.captures import RUN_ID, append, conversation, small_run, write_rollout, write_run


def _open(directory: Path, **more: Any) -> Index:
    return Index(directory, options=SpanOptions(), **more)


def _summary(index: Index) -> dict[str, Any]:
    rows = index.database.rows("SELECT * FROM rollouts")
    return {
        row["rollout_id"]: {
            **{key: value for key, value in row.items() if key != "id"},
            "rows": [
                {key: value for key, value in call.items() if key != "rollout"}
                for call in index.calls(row["id"])
            ],
        }
        for row in rows
    }


def test_an_index_that_grew_with_the_files_equals_one_made_at_once(tmp_path: Path) -> None:
    """Appending line by line with a refresh after each gives the same rows as one reading of the whole."""
    directory = write_run(tmp_path / "run")
    grown = _open(directory)
    for record in conversation("3-1", 6):
        append(directory, "3-1", [record])
        grown.refresh()
    write_rollout(directory, "3-1", reward=0.25)
    grown.refresh()
    at_once = _open(directory, keep=False)
    at_once.refresh()
    assert _summary(grown) == _summary(at_once)
    assert at_once.database.row("SELECT calls, reward, lines FROM rollouts") == {
        "calls": 6,
        "reward": 0.25,
        "lines": 6,
    }
    grown.close()
    at_once.close()


def test_a_second_refresh_reads_nothing_and_a_kept_index_needs_no_reading(run_dir: Path) -> None:
    """Files that have not changed are not read again, neither by the same index nor by the next viewer."""
    first = _open(run_dir)
    assert first.refresh() is True
    assert first.refresh() is False
    expected = _summary(first)
    first.close()
    for path in run_dir.glob("*.capture.jsonl"):
        # Same size, time and inode, other bytes: only a reader would notice.
        stamp = path.stat()
        with path.open("r+b") as file:
            file.write(b"#")
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    second = _open(run_dir)
    assert second.refresh() is False
    assert _summary(second) == expected
    second.close()


def test_a_file_whose_indexed_part_changed_is_read_from_its_start(tmp_path: Path) -> None:
    """A file that was rewritten longer, under the same inode, does not keep rows of what it was."""
    directory = write_run(tmp_path / "run")
    path = append(directory, "5-0", conversation("5-0", 2))
    index = _open(directory)
    index.refresh()
    replaced = [json.dumps(record) for record in conversation("5-0", 4, start=100.0)]
    with path.open("r+b") as file:
        file.write(("\n".join(replaced) + "\n").encode())
        file.truncate()
    index.refresh()
    row = index.rollout("5-0")
    assert row is not None
    calls = index.calls(row["id"])
    assert len(calls) == 4
    assert calls[0]["started_at"] == conversation("5-0", 1, start=100.0)[0]["started_at"]
    index.close()


def test_removed_and_cleared_rollouts_vanish(run_dir: Path) -> None:
    """What is no longer in the directory is no longer in the index."""
    index = _open(run_dir)
    index.refresh()
    (run_dir / "1-0-a1.capture.jsonl").unlink()
    assert index.rollout("1-0-a1") is None
    (run_dir / "judge.of_everything.capture.jsonl").unlink()
    index.refresh()
    assert index.database.tuples("SELECT count(*) FROM rollouts") == [(3,)]
    assert index.database.tuples(
        "SELECT count(*) FROM calls WHERE rollout NOT IN (SELECT id FROM rollouts)"
    ) == [(0,)]
    index.close()


def test_damaged_and_torn_lines_cost_only_themselves(tmp_path: Path) -> None:
    """A damaged line is counted, its neighbours are shown, and a line without its end is waited for."""
    directory = write_run(tmp_path / "run")
    records = conversation("7-0", 3)
    path = append(directory, "7-0", records[:1])
    with path.open("ab") as file:
        file.write(b'{"model_call_id": "cut\n[1, 2]\n')
    append(directory, "7-0", records[1:2])
    line = json.dumps(records[2]).encode()
    with path.open("ab") as file:
        file.write(line[:200])
    index = _open(directory)
    row = index.rollout("7-0")
    assert row is not None
    assert (row["calls"], row["damaged"], row["lines"]) == (2, 2, 4)
    assert [call["number"] for call in index.calls(row["id"])] == [0, 3]
    with path.open("ab") as file:
        file.write(line[200:] + b"\n")
    row = index.rollout("7-0")
    assert row is not None
    assert row["calls"] == 3
    index.close()


@pytest.mark.parametrize("damage", ["garbage", "other version", "other run", "other database"])
def test_an_index_that_is_not_ours_is_thrown_away(run_dir: Path, damage: str) -> None:
    """A damaged index, one of another version and one of another run are made again, with the same content."""
    index = _open(run_dir)
    index.refresh()
    expected = {name: row["calls"] for name, row in _summary(index).items()}
    index.close()
    path = index_path(Layout(run_dir))
    if damage == "garbage":
        path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
        for side in (path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
            side.unlink(missing_ok=True)
    elif damage == "other run":
        write_run(run_dir, "another run")
    else:
        connection = sqlite3.connect(path)
        if damage == "other version":
            connection.execute("UPDATE meta SET value='0' WHERE key='version'")
            connection.execute("UPDATE rollouts SET calls=99")
        else:
            connection.execute("DROP TABLE meta")
        connection.commit()
        connection.close()
    again = _open(run_dir)
    assert again.database.path == path
    assert again.refresh() is True
    assert {name: row["calls"] for name, row in _summary(again).items()} == expected
    again.close()


def test_a_directory_that_cannot_be_written_is_indexed_in_memory(tmp_path: Path) -> None:
    """Where the index cannot stand beside the files, the viewer works all the same and leaves nothing."""
    directory = small_run(tmp_path / "run")
    # A file where the folder should be: refuses even a superuser, whom mode bits do not.
    (directory / ".otel-gym").write_text("")
    index = _open(directory)
    assert index.database.in_memory
    assert index.refresh() is True
    assert index.database.tuples("SELECT count(*), sum(calls) FROM rollouts") == [(5, 15)]
    assert (directory / ".otel-gym").read_text() == ""
    index.close()


def test_calls_that_continue_an_earlier_one_name_it(run_dir: Path) -> None:
    """Each call of a conversation says which call's messages it repeats, and how many they are."""
    index = _open(run_dir)
    row = index.rollout("0-0")
    assert row is not None
    calls = index.calls(row["id"])
    assert [(call["extends"], call["repeated"]) for call in calls] == [
        (None, 0),
        (0, 2),
        (1, 4),
        (2, 6),
        (3, 8),
    ]
    index.close()


def test_links_out_of_the_directory_are_not_followed(tmp_path: Path) -> None:
    """A symbolic link under a rollout's name shows nothing of what it points to."""
    directory = write_run(tmp_path / "run")
    outside = append(tmp_path, "9-9", conversation("9-9", 1))
    (directory / "9-9.capture.jsonl").symlink_to(outside)
    index = _open(directory)
    index.refresh()
    assert index.rollout("9-9") is None
    index.close()


def test_a_directory_becomes_a_run_while_it_is_watched(tmp_path: Path) -> None:
    """A viewer that was there before the first producer takes over the run's name, and with it the right trace ids."""
    directory = tmp_path / "run"
    directory.mkdir()
    append(directory, "0-0", conversation("0-0", 2))
    index = _open(directory)
    index.refresh()
    before = index.rollout("0-0")
    assert before is not None and index.named_run is None
    write_run(directory)
    index.refresh()
    after = index.rollout("0-0")
    assert after is not None
    assert index.run.run_id == RUN_ID
    assert after["trace_id"] == trace_id(RUN_ID, "0-0") != before["trace_id"]
    assert after["calls"] == 2
    index.close()
    again = _open(directory)
    assert again.refresh() is False, "the kept index is of the run now"
    again.close()


def test_what_was_computed_is_there_for_the_next_viewer(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value is computed once for a state of the files, by whichever viewer comes first, and again when they change."""
    monkeypatch.setattr("otel_gym.viewer.kept.WORTH_KEEPING_S", -1.0)
    computed: list[int] = []

    def compute() -> int:
        computed.append(len(computed) + 1)
        return computed[-1]

    for _ in range(2):
        index = _open(run_dir)
        index.refresh()
        kept = Kept(index, "test", compute)
        assert (kept.get(), kept.get()) == (1, 1)
        index.close()
    append(run_dir, "0-0", conversation("0-0", 6)[5:])
    index = _open(run_dir)
    kept = Kept(index, "test", compute)
    assert kept.get() == 1, "before the files were looked at"
    index.refresh()
    assert kept.get() == 2
    index.close()


def test_token_counts_that_no_model_has_do_not_stop_the_index(tmp_path: Path) -> None:
    """Sums of counts near 2**63 would not fit into the index; such a count is not known, and everything else is indexed."""
    directory = write_run(tmp_path / "run")
    records = conversation("1-0", 3)
    for record in records[:2]:
        record["response"]["usage"] = {"prompt_tokens": 2**63 - 1, "completion_tokens": 5}
    append(directory, "1-0", records)
    append(directory, "2-0", conversation("2-0", 1))
    index = _open(directory)
    index.refresh()
    assert index.problem is None
    assert index.database.rows(
        "SELECT rollout_id, calls, tokens_in_known, tokens_out FROM rollouts ORDER BY rollout_id"
    ) == [
        {"rollout_id": "1-0", "calls": 3, "tokens_in_known": 1, "tokens_out": 28},
        {"rollout_id": "2-0", "calls": 1, "tokens_in_known": 1, "tokens_out": 18},
    ]
    index.close()


def test_a_file_replaced_while_it_is_indexed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file that is another one than the look at the directory found is read in full the next time, whatever was read of it."""
    directory = write_run(tmp_path / "run")
    append(directory, "1-0", conversation("1-0", 2))
    index = _open(directory)
    before = scan(index.layout)
    (directory / "1-0.capture.jsonl").unlink()
    append(directory, "1-0", conversation("1-0", 4)[2:])
    monkeypatch.setattr("otel_gym.viewer.index.indexer.scan", lambda *_: before)
    index.refresh()
    monkeypatch.undo()
    index.refresh()
    numbers = [record["model_call_id"] for record in conversation("1-0", 4)[2:]]
    row = index.rollout("1-0")
    assert row is not None
    assert [call["model_call_id"] for call in index.calls(row["id"])] == numbers
    index.close()


def test_viewers_that_start_together_share_one_sound_index(tmp_path: Path) -> None:
    """Several viewers that open a directory at the same moment, new or with an index to throw away, end with one index that is whole."""
    directory = write_run(tmp_path / "run")
    for number in range(30):
        append(directory, f"{number}-0", conversation("x", 2))
    path = index_path(Layout(directory))
    failures: list[BaseException] = []

    def look(start: threading.Barrier) -> None:
        try:
            start.wait()
            index = _open(directory)
            for _ in range(3):
                index.refresh()
                assert len(_summary(index)) == 30
            assert not index.database.in_memory
            index.close()
        except BaseException as error:
            failures.append(error)

    for number in range(12):
        if number % 2:
            path.write_bytes(b"no database" * 1000)
        else:
            shutil.rmtree(path.parent, ignore_errors=True)
        start = threading.Barrier(4)
        viewers = [threading.Thread(target=look, args=(start,)) for _ in range(4)]
        for viewer in viewers:
            viewer.start()
        for viewer in viewers:
            viewer.join()
        assert failures == []
        with contextlib.closing(sqlite3.connect(path)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert database.execute("SELECT count(*) FROM calls").fetchall() == [(60,)]


def test_a_refresh_that_is_stopped_goes_on_the_next_time(tmp_path: Path) -> None:
    """Stopped in the middle, an index ends with what it has, says that this is not all, and the next viewer reads only the rest."""
    directory = write_run(tmp_path / "run")
    for number in range(1200):
        append(directory, f"{number}-0", conversation("x", 1))
    index = _open(directory)
    read = index.database.writing
    index.database.writing = lambda: (index.stop(), read())[1]  # type: ignore[method-assign,func-returns-value]
    index.refresh()
    assert not index.progress.first_done
    [(done,)] = index.database.tuples("SELECT count(*) FROM rollouts")
    assert 0 < done <= 512
    index.close()
    rest = _open(directory)
    rest.refresh()
    assert rest.progress.total == 1200 - done
    assert rest.progress.first_done
    rest.close()


def test_a_fault_while_following_is_shown_and_survived(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes wrong in the background is on the page, counted, and the next look is taken all the same."""
    index = _open(run_dir)
    looks: list[int] = []

    def refresh() -> bool:
        looks.append(1)
        if len(looks) == 1:
            raise RuntimeError("a fault of our own")
        return Index.refresh(index)

    monkeypatch.setattr(index, "refresh", refresh)
    before = counted("store.failures")
    follower = Follower(index)
    follower.start()
    deadline = time.monotonic() + 20
    while len(looks) < 1 or index.problem is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "a fault of our own" in index.problem
    assert counted("store.failures") == before + 1
    while not index.progress.first_done:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert index.problem is None
    follower.stop()
    index.close()
