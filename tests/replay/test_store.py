"""The history store: appending, branching, sharing, concurrent readers and damage."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from otel_gym.replay import HistoryEntry, HistoryStore, Turn
from otel_gym.replay.errors import DamagedHistory, HistoryStoreError, UnknownHistory
from tests.replay.samples import BUNDLE, call, message, turn

MESSAGE: dict[str, Any] = {"role": "user", "content": "hi"}


def made(number: int) -> Turn:
    """A turn that no other number makes."""
    experts = [[[number % 256] * 8] * 4] * 64
    ids = list(range(40 + number))
    bundle = {"prompt_token_ids": ids, "generation_token_ids": [1], "generation_log_probs": [-0.5]}
    return turn(message(f"turn {number}", **bundle, routed_experts=experts))


def counts(path: Path) -> tuple[int, int]:
    """Rows of entries and of columns."""
    with sqlite3.connect(path) as connection:
        query = "SELECT (SELECT count(*) FROM node), (SELECT count(*) FROM column_data)"
        nodes, columns = connection.execute(query).fetchone()
    connection.close()
    return nodes, columns


def test_a_checkpoint_writes_only_what_is_new(tmp_path: Path) -> None:
    """Each checkpoint appends the new entries, and a new object over the same file continues them."""
    path = tmp_path / "h.db"
    history: list[HistoryEntry] = []
    for number in range(6):
        history += [made(number), {"role": "user", "content": str(number)}]
        with HistoryStore(path) as store:
            assert store.checkpoint("r", history) == 2
            assert store.checkpoint("r", history) == 0
            assert store.load("r") == history
    assert counts(path) == (12, 24)


def test_growing_prompts_are_stored_as_suffixes(tmp_path: Path) -> None:
    """A checkpoint stores of a prompt only what it adds, also where the store was opened anew."""
    prompt = list(range(5000))
    turns: list[HistoryEntry] = []
    for number in range(3):
        bundle = {**BUNDLE, "prompt_token_ids": prompt + [number] * number}
        turns.append(turn(message(**bundle)))
        with HistoryStore(tmp_path / "h.db") as store:
            store.checkpoint("r", turns)
    with HistoryStore(tmp_path / "h.db") as store:
        assert store.load("r") == turns
    with sqlite3.connect(tmp_path / "h.db") as connection:
        sizes = connection.execute("SELECT length(data) FROM column_data WHERE position = 0")
        assert [size for (size,) in sizes] == [10_000, 2, 4]
    connection.close()


def test_a_changed_history_forks_and_keeps_the_old_one(tmp_path: Path) -> None:
    """A history that differs from its checkpoint shares the common entries; the rest is written beside."""
    with HistoryStore(tmp_path / "h.db") as store:
        store.checkpoint("r", [made(0), MESSAGE, made(1)])
        store.fork("r", 3, to_branch="before the edit")
        changed = [made(0), MESSAGE, made(1).replace_text("edited"), made(2)]
        assert store.checkpoint("r", changed) == 2
        assert store.load("r") == changed
        assert store.load("r", branch="before the edit") == [made(0), MESSAGE, made(1)]
        shorter = changed[:1]
        assert store.checkpoint("r", shorter) == 0
        assert store.load("r") == shorter
    assert counts(tmp_path / "h.db")[0] == 5


def test_forks_share_their_prefix(tmp_path: Path) -> None:
    """From any turn a fork continues on its own, into another rollout or attempt, and copies nothing."""
    history: list[HistoryEntry] = [made(number) for number in range(5)]
    with HistoryStore(tmp_path / "h.db") as store:
        store.checkpoint("r", history)
        for kept in range(6):
            store.fork("r", kept, to_rollout_id="s", to_attempt=kept)
            assert store.load("s", attempt=kept) == history[:kept]
        assert counts(tmp_path / "h.db")[0] == 5
        store.checkpoint("s", [*history[:2], made(9)], attempt=2)
        assert store.load("s", attempt=2) == [*history[:2], made(9)]
        assert store.load("r") == history
        assert store.load("r", entries=2) == history[:2]
        listed = [(b.rollout_id, b.attempt, b.entries, b.turns) for b in store.branches("s")]
        assert listed == [
            ("s", 0, 0, 0), ("s", 1, 1, 1), ("s", 2, 3, 3), ("s", 3, 3, 3), ("s", 4, 4, 4), ("s", 5, 5, 5)
        ]  # fmt: skip


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    """An unknown rollout or position, and a fork onto a branch that exists, are refused with their names."""
    with HistoryStore(tmp_path / "h.db") as store:
        store.checkpoint("r", [made(0)])
        with pytest.raises(UnknownHistory, match="rollout 'x', attempt 0"):
            store.load("x")
        with pytest.raises(UnknownHistory, match="has 1 entries, not 2"):
            store.load("r", entries=2)
        with pytest.raises(UnknownHistory, match="has 1 entries, not -1"):
            store.fork("r", -1, to_branch="b")
        with pytest.raises(HistoryStoreError, match="exists already"):
            store.fork("r", 1)


def test_other_files_and_newer_versions_are_refused(tmp_path: Path) -> None:
    """A text file, another program's database and a newer store are not touched."""
    (tmp_path / "text").write_text("hello, this is a text file")
    with pytest.raises(HistoryStoreError, match="not a history database"):
        HistoryStore(tmp_path / "text")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(HistoryStoreError, match="not a history database"):
        HistoryStore(tmp_path / "other.db")
    HistoryStore(tmp_path / "h.db").close()
    newer = sqlite3.connect(tmp_path / "h.db")
    newer.execute("PRAGMA user_version = 2")
    newer.close()
    with pytest.raises(HistoryStoreError, match="version 2 is newer than 1"):
        HistoryStore(tmp_path / "h.db")
    with pytest.raises(HistoryStoreError, match="not a history database"):
        HistoryStore(tmp_path / "absent.db", read_only=True)
    assert not (tmp_path / "absent.db").exists()


DAMAGE = {
    "entry": "UPDATE node SET value = CAST(replace(CAST(value AS TEXT), 'hi', 'ho') AS BLOB)"
    " WHERE kind = 'message'",
    "kind": "UPDATE node SET kind = 'message' WHERE id = 1",
    "head": "UPDATE node SET head = CAST(replace(CAST(head AS TEXT), 'turn 1', 'turn 7') AS BLOB)"
    " WHERE id = 3",
    "mark": "UPDATE node SET mark = 'column:x:' WHERE id = 3",
    "digest": "UPDATE node SET digest = (SELECT digest FROM node WHERE id = 1) WHERE id = 3",
    "chain": "UPDATE node SET chain = '' WHERE id = 2",
    "parent": "UPDATE node SET parent = 1 WHERE id = 3",
    "circle": "UPDATE node SET parent = 3 WHERE id = 1",
    "column": "UPDATE column_data SET data = zeroblob(length(data)) WHERE node_id = 3 AND position = 3",
    "suffix": "UPDATE column_data SET data = zeroblob(length(data)) WHERE node_id = 3 AND position = 0",
    "shared": "UPDATE column_data SET description = replace(description, '\"shared\":40', '\"shared\":39')",
    "field": "UPDATE column_data SET description = replace(description, 'prompt_', 'promptx')",
    "shape": "UPDATE column_data SET description = replace(description, '64,4,8', '64,8,4')",
    "dtype": "UPDATE column_data SET description = replace(description, '<f8', '<i8')",
    "no column": "DELETE FROM column_data WHERE node_id = 1 AND position = 2",
    "no entry": "DELETE FROM node WHERE id = 2",
    "tip": "UPDATE branch SET node_id = 2",
    "name": "UPDATE branch SET attempt = 7",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE.keys())
def test_any_damage_to_a_row_is_found(statement: str, tmp_path: Path) -> None:
    """Whatever is changed in a row, reading raises DamagedHistory instead of giving another history."""
    path = tmp_path / "h.db"
    first, second = made(0), made(1)
    with HistoryStore(path) as store:
        store.checkpoint("r", [first, MESSAGE, second])
    changer = sqlite3.connect(path)
    changer.execute("PRAGMA foreign_keys = OFF")
    assert changer.execute(statement).rowcount
    changer.commit()
    changer.close()
    with HistoryStore(path, read_only=True) as store:
        (branch,) = store.branches()
        with pytest.raises(DamagedHistory):
            store.verify(branch)


def test_a_torn_page_is_found(tmp_path: Path) -> None:
    """A database whose pages were overwritten raises DamagedHistory, not an error of SQLite."""
    path = tmp_path / "h.db"
    with HistoryStore(path) as store:
        store.checkpoint("r", [made(number) for number in range(20)])
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 5] = b"\xa5" * 8192
    path.write_bytes(content)
    with pytest.raises(DamagedHistory), HistoryStore(path, read_only=True) as store:
        for branch in store.branches():
            store.verify(branch)
        store.verify_file()


def test_threads_share_a_store(tmp_path: Path) -> None:
    """One store object takes checkpoints of many rollouts from many threads."""
    with HistoryStore(tmp_path / "h.db") as store:

        def work(name: str) -> None:
            history: list[HistoryEntry] = []
            for number in range(5):
                history.append(made(number))
                store.checkpoint(name, history)

        threads = [threading.Thread(target=work, args=(f"r{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = [made(number) for number in range(5)]
        assert [b.rollout_id for b in store.branches()] == ["r0", "r1", "r2", "r3"]
        for branch in store.branches():
            assert store.load(branch.rollout_id) == expected


WRITER = """
import sys
from otel_gym.replay import HistoryStore
from tests.replay.test_store import made

with HistoryStore(sys.argv[1]) as store:
    history = []
    for number in range(30):
        history.append(made(number))
        store.checkpoint("r", history)
"""


def test_readers_see_whole_histories_while_another_process_writes(tmp_path: Path) -> None:
    """A reader beside a writing process always reads a verified prefix, never less than it saw before."""
    path = tmp_path / "h.db"
    HistoryStore(path).close()
    root = Path(__file__).resolve().parents[2]
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], cwd=root)
    seen = 0
    with HistoryStore(path, read_only=True) as reader:
        while seen < 30:
            finished = writer.poll() is not None
            if reader.branches("r"):
                history = reader.load("r")
                assert len(history) >= seen
                assert history[-1:] == [made(len(history) - 1)]
                seen = len(history)
            if finished:
                break
    assert writer.wait() == 0
    assert seen == 30


def test_two_writers_of_one_branch_never_mix(tmp_path: Path) -> None:
    """A writer whose branch was moved by another reads it anew and loses nothing of either."""
    with HistoryStore(tmp_path / "h.db") as one, HistoryStore(tmp_path / "h.db") as other:
        one.checkpoint("r", [made(0)])
        other.checkpoint("r", [made(0), turn(call())])
        assert one.checkpoint("r", [made(0), turn(call()), made(1)]) == 1
        assert other.load("r") == [made(0), turn(call()), made(1)]
