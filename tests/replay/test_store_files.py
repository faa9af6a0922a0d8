"""The file under a history store: read-only, full, removed, replaced, and keys that no file can hold."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_gym.replay import HistoryEntry, HistoryStore
from otel_gym.replay.errors import DamagedHistory, HistoryStoreError
from tests.reliability.mounts import Mount
from tests.replay.test_store import MESSAGE, made

ROOT = Path(__file__).resolve().parents[2]

UNCLEAN_WRITER = """
import os, sys
from otel_gym.replay import HistoryStore
from tests.replay.test_store import MESSAGE, made

HistoryStore(sys.argv[1]).checkpoint("r", [made(0), MESSAGE])
os._exit(0)
"""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """A small file system of its own."""
    mounted = Mount(tmp_path / "mount")
    mounted.tmpfs("size=1m")
    yield mounted
    mounted.close()


@pytest.mark.parametrize("closed", [True, False])
def test_a_read_only_file_system_is_read(mount: Mount, closed: bool) -> None:
    """A store on read-only storage gives its histories, whether its writer closed it or was killed."""
    path = mount.path / "h.db"
    if closed:
        with HistoryStore(path) as store:
            store.checkpoint("r", [made(0), MESSAGE])
    else:
        subprocess.run([sys.executable, "-c", UNCLEAN_WRITER, str(path)], check=True, cwd=ROOT)
    link = mount.path.parent / "link.db"
    link.symlink_to(path)
    mount.remount("ro")
    for name in (path, link):
        with HistoryStore(name, read_only=True) as store:
            assert store.load("r") == [made(0), MESSAGE]
            store.verify_file()
    with pytest.raises(HistoryStoreError), HistoryStore(path) as store:
        store.checkpoint("r", [MESSAGE])


def test_a_full_disk_loses_nothing_that_was_written(mount: Mount) -> None:
    """With no room a checkpoint raises, earlier ones stay readable, and with room it goes through."""
    path = mount.path / "h.db"
    history: list[HistoryEntry] = []
    with HistoryStore(path) as store:
        with pytest.raises(HistoryStoreError, match="full"):
            for number in range(1000):
                history.append(made(number))
                store.checkpoint("r", history)
        assert store.load("r") == history[:-1]
        with pytest.raises(HistoryStoreError, match="full"):
            store.checkpoint("r", history)
    with HistoryStore(path) as store:
        assert store.load("r") == history[:-1]
    mount.remount("size=8m")
    with HistoryStore(path) as store:
        assert store.checkpoint("r", history) == 1
        assert store.load("r") == history
        store.verify_file()


@pytest.mark.parametrize("what", ["removed", "another file", "a folder"])
def test_a_file_that_is_gone_takes_no_checkpoint(what: str, tmp_path: Path) -> None:
    """A checkpoint that nobody could find again is an error, not a success."""
    path = tmp_path / "h.db"
    with HistoryStore(path) as store:
        store.checkpoint("r", [made(0)])
        shutil.copy(path, tmp_path / "copy.db")
        path.unlink()
        if what == "another file":
            (tmp_path / "copy.db").rename(path)
        elif what == "a folder":
            path.mkdir()
        with pytest.raises(HistoryStoreError, match="removed or replaced"):
            store.checkpoint("r", [made(0), made(1)])


@pytest.mark.parametrize(
    "key",
    [
        {"rollout_id": "\ud800"}, {"rollout_id": 7}, {"rollout_id": None}, {"rollout_id": b"r"},
        {"attempt": -1}, {"attempt": 2**63}, {"attempt": 1.0}, {"attempt": True}, {"attempt": "1"},
        {"branch": "\udfff"}, {"branch": None},
    ],
)  # fmt: skip
def test_a_key_that_no_file_can_hold_is_refused(key: dict[str, Any], tmp_path: Path) -> None:
    """A wrong rollout id, attempt or branch is named at once instead of making a branch that looks damaged."""
    wanted: dict[str, Any] = {"rollout_id": "r", "attempt": 0, "branch": "main", **key}
    rollout = wanted.pop("rollout_id")
    with HistoryStore(tmp_path / "h.db") as store:
        store.checkpoint("r", [MESSAGE])
        target = {f"to_{name}": value for name, value in wanted.items()}
        for refused in (
            lambda: store.checkpoint(rollout, [MESSAGE], **wanted),
            lambda: store.load(rollout, **wanted),
            lambda: store.fork(rollout, 1, to_branch="other", **wanted),
            lambda: store.fork("r", 1, to_rollout_id=rollout or b"", **target),
        ):
            with pytest.raises(HistoryStoreError, match="is no "):
                refused()
        assert len(store.branches()) == 1


@pytest.mark.parametrize("rollout", ["", "é", "\0", "a" * 5000, "../x", "' OR 1=1 --"])
def test_any_text_is_a_rollout(rollout: str, tmp_path: Path) -> None:
    """A rollout id is only text to a store."""
    with HistoryStore(tmp_path / "h.db") as store:
        store.checkpoint(rollout, [MESSAGE], attempt=2**63 - 1, branch=rollout)
        (branch,) = store.branches()
        store.verify(branch)
        assert branch.key == (rollout, 2**63 - 1, rollout)


def test_an_entry_that_is_too_large_is_no_damage(tmp_path: Path) -> None:
    """A value beyond what SQLite holds is refused with its reason, and the branch is as it was."""
    with HistoryStore(tmp_path / "h.db") as store:
        store.checkpoint("r", [MESSAGE])
        # SQLite's own limit, 1 GB, brought down to where a test reaches it.
        limit = store._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1000)
        with pytest.raises(HistoryStoreError, match="too big") as caught:
            store.checkpoint("r", [MESSAGE, made(0)])
        assert not isinstance(caught.value, DamagedHistory)
        store._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limit)
        assert store.load("r") == [MESSAGE]
        assert store.checkpoint("r", [MESSAGE, made(0)]) == 1
