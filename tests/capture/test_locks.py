"""Locks and syncs where the system offers less than Linux on a local disk."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_gym.capture import locks, syncing
from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.locks import Lock
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.syncing import MAX_FILES, ParallelSyncer, SequentialSyncer, make_syncer
from otel_gym.capture.writer import RecordWriter
from otel_gym.counters import counted
from tests.capture.calls import finished_call

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that refuses flock."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks, "fcntl", SimpleNamespace(**{**vars(fcntl), "flock": refuse}))
    monkeypatch.setattr(locks, "_warned", False)


async def test_without_locks_appends_are_single_writes(
    no_locks: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where flock is refused, writers, stores, torn tails and clears still work, and one warning says so."""
    refused = counted("locks.unsupported")
    writer = RecordWriter(tmp_path)
    store = CaptureStore(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            facts = finished_call("r")
            written = await writer.write(facts, writer.begin("r", facts.model_call_id))
            assert written is not None
            other = store.record("r", {"model_call_id": "x"})
            data = store.path_for("r").read_bytes()
            for one in (written, other):
                line = data[one.offset_bytes : one.offset_bytes + one.length_bytes]
                assert line.startswith(b"{") and line.endswith(b"}\n") and line.count(b"\n") == 1
    assert len(store.read("r")) == 10
    with store.path_for("r").open("ab") as file:
        file.write(b"torn")
    store.record("r", {"model_call_id": "y"})
    assert store.read_available("r")[1] == 1
    store.clear("r")
    assert store.read("r") == []
    writer.close(5)
    assert counted("locks.unsupported") > refused
    assert len([r for r in caplog.records if "refuses flock" in r.message]) == 1


def test_without_locks_processes_do_not_tear_lines(tmp_path: Path) -> None:
    """On a local disk O_APPEND alone keeps lines of several processes whole."""
    script = """
import sys
from types import SimpleNamespace
from pathlib import Path
from otel_gym.capture import locks
def refuse(*_):
    raise OSError(95, "no")
locks.fcntl = SimpleNamespace(**{**vars(locks.fcntl), "flock": refuse})
from otel_gym.capture.store import CaptureStore
store = CaptureStore(Path(sys.argv[1]))
for i in range(100):
    store.record("r", {"model_call_id": f"{sys.argv[2]}-{i}", "text": "x" * 3000})
"""
    children = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(i)], cwd=ROOT)
        for i in range(3)
    ]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    ids = [r["model_call_id"] for r in CaptureStore(tmp_path).read("r")]
    assert len(set(ids)) == len(ids) == 300
    assert read_ledger(CaptureStore(tmp_path)).rollouts[0].torn == 0


def test_other_errors_are_not_taken_for_missing_locks(tmp_path: Path) -> None:
    """A closed descriptor is an error, not a file system without locks."""
    with pytest.raises(OSError):
        locks.try_lock(9999)


def test_waiting_for_a_lock_ends(tmp_path: Path) -> None:
    """A lock that nobody gives back is reported busy at the bound."""
    holders = [os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    assert locks.lock(holders[0], 1) is Lock.HELD
    assert locks.lock(holders[1], 0.02) is Lock.BUSY
    locks.unlock(holders[0])
    assert locks.lock(holders[1], 1) is Lock.HELD
    for descriptor in holders:
        os.close(descriptor)


@pytest.mark.parametrize("kind", [ParallelSyncer, SequentialSyncer])
def test_syncs_tell_which_file_failed(tmp_path: Path, kind: Any) -> None:
    """Each file has its own outcome, by its token, whatever their number."""
    try:
        syncer = kind()
    except OSError:
        pytest.skip("this kernel offers no Linux AIO")
    good = [os.open(tmp_path / str(i), os.O_RDWR | os.O_CREAT) for i in range(MAX_FILES)]
    read_end, write_end = os.pipe()
    mixed = [*good[:2], write_end, *good[2:]]
    for _ in range(2):
        for files in (mixed[:MAX_FILES], good[:1], good[:MAX_FILES], []):
            syncer.submit(list(enumerate(files)))
            outcome: dict[int, OSError | None] = {}
            while len(outcome) < len(files):
                outcome |= syncer.reap(1)
            assert sorted(outcome) == list(range(len(files)))
            failed = [token for token, error in outcome.items() if error is not None]
            assert failed == ([2] if files == mixed[:MAX_FILES] else [])
    syncer.close()
    for descriptor in (*good, read_end, write_end):
        os.close(descriptor)


def test_a_system_without_parallel_syncs_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine or system the plain form is used."""
    monkeypatch.setattr(syncing.platform, "machine", lambda: "s390x")
    assert isinstance(make_syncer(), SequentialSyncer)
    assert not syncing.parallel_sync_available()


def test_threads_of_one_process_share_a_rollout(tmp_path: Path) -> None:
    """Stores in several threads and a writer append to one file without harm."""
    store = CaptureStore(tmp_path)

    async def go() -> None:
        writer = RecordWriter(tmp_path)

        async def call() -> None:
            facts = finished_call("r")
            assert await writer.write(facts, writer.begin("r", facts.model_call_id))

        threads = [
            asyncio.to_thread(
                lambda n=n: [store.record("r", {"model_call_id": f"{n}-{i}"}) for i in range(50)]
            )
            for n in range(4)
        ]
        await asyncio.gather(*threads, *(call() for _ in range(50)))
        writer.close(5)

    asyncio.run(go())
    ids = [r["model_call_id"] for r in store.read("r")]
    assert len(set(ids)) == len(ids) == 250
