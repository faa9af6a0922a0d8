"""Locks and syncs where the system offers less than Linux on a local disk."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_gym.capture import locks, syncing
from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.locks import Lock
from otel_gym.capture.quick import PlainCalls, QuickCalls
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.syncing import (
    MAX_FILES,
    Ended,
    Entry,
    ParallelSyncer,
    SequentialSyncer,
    make_syncer,
)
from otel_gym.capture.writer import RecordWriter
from otel_gym.counters import counted
from tests.capture.calls import finished_call

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that refuses flock."""

    def refuse(self: PlainCalls, descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    for kind in (PlainCalls, QuickCalls):
        monkeypatch.setattr(kind, "flock", refuse)
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
from pathlib import Path
from otel_gym.capture.quick import PlainCalls, QuickCalls
def refuse(*_):
    raise OSError(95, "no")
PlainCalls.flock = QuickCalls.flock = refuse
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
    syncer = make_kind(kind)
    good = [os.open(tmp_path / str(i), os.O_RDWR | os.O_CREAT) for i in range(MAX_FILES)]
    read_end, write_end = os.pipe()
    mixed = [*good[:2], write_end, *good[2:]]
    for _ in range(2):
        for files in (mixed[:MAX_FILES], good[:1], good[:MAX_FILES], []):
            syncer.submit([Entry(token, file, b"") for token, file in enumerate(files)])
            outcome: dict[int, OSError | None] = {}
            while len(outcome) < len(files):
                outcome |= {one.token: one.error for one in syncer.reap(1)}
            assert sorted(outcome) == list(range(len(files)))
            failed = [token for token, error in outcome.items() if error is not None]
            assert failed == ([2] if files == mixed[:MAX_FILES] else [])
    syncer.close()
    for descriptor in (*good, read_end, write_end):
        os.close(descriptor)


@pytest.mark.parametrize("kind", [ParallelSyncer, SequentialSyncer])
@pytest.mark.parametrize("count", [1, 2, MAX_FILES])
def test_blocks_are_appended_before_the_sync(tmp_path: Path, kind: Any, count: int) -> None:
    """Each block is at the end of its file when its sync has ended, and an entry without one only syncs."""
    syncer = make_kind(kind)
    names = [tmp_path / str(i) for i in range(count)]
    files = [os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND) for name in names]
    for descriptor in files:
        os.write(descriptor, b"first\n")
    blocks = [b"" if i % 3 == 2 else b"%d\n" % i * (i + 1) for i in range(count)]
    syncer.submit([Entry(i, files[i], blocks[i]) for i in range(count)])
    ended: list[Ended] = []
    while len(ended) < count:
        ended += syncer.reap(1)
    syncer.close()
    assert sorted(ended) == [Ended(i, len(blocks[i]), None) for i in range(count)]
    for name, block in zip(names, blocks, strict=True):
        assert name.read_bytes() == b"first\n" + block
    for descriptor in files:
        os.close(descriptor)


@pytest.mark.parametrize("kind", [ParallelSyncer, SequentialSyncer])
def test_an_append_that_fails_says_so(tmp_path: Path, kind: Any) -> None:
    """A file that takes no block has an error, one that takes a part of it says how much, and their neighbours have neither."""
    syncer = make_kind(kind)
    good, read_only, limited = tmp_path / "good", tmp_path / "read_only", tmp_path / "limited"
    for path in (good, read_only, limited):
        path.write_bytes(b"")
    files = [
        os.open(good, os.O_WRONLY | os.O_APPEND),
        os.open(read_only, os.O_RDONLY),
        os.open(limited, os.O_WRONLY | os.O_APPEND),
    ]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        syncer.submit([Entry(i, files[i], b"x" * (100, 100, 1500)[i]) for i in range(3)])
        ended: list[Ended] = []
        while len(ended) < 3:
            ended += syncer.reap(1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
        syncer.close()
    outcome = {one.token: one for one in ended}
    assert outcome[0] == Ended(0, 100, None)
    assert outcome[1].error is not None and outcome[1].error.errno == errno.EBADF
    assert outcome[2].written == 1000 == limited.stat().st_size
    for descriptor in files:
        os.close(descriptor)


def test_a_kernel_that_takes_only_some_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever part of a group the kernel takes, each block is appended once and each file synced."""
    files = [os.open(tmp_path / str(i), os.O_RDWR | os.O_CREAT | os.O_APPEND) for i in range(4)]
    original = ParallelSyncer._call
    for taken in range(9):
        syncer = make_kind(ParallelSyncer)

        def call(self: Any, number: Any, *rest: Any, taken: int = taken) -> int:
            if number is self._submit:
                if taken == 0:
                    raise OSError(errno.EAGAIN, "none")
                rest = (rest[0], type(rest[1])(min(taken, rest[1].value)), rest[2])
            return original(self, number, *rest)

        monkeypatch.setattr(ParallelSyncer, "_call", call)
        syncer.submit([Entry(i, files[i], b"%d\n" % taken) for i in range(4)])
        ended: list[Ended] = []
        while len(ended) < 4:
            ended += syncer.reap(1)
        monkeypatch.undo()
        syncer.close()
        assert sorted(ended) == [Ended(i, 2, None) for i in range(4)], taken
    for i, descriptor in enumerate(files):
        assert (tmp_path / str(i)).read_bytes() == b"".join(b"%d\n" % k for k in range(9))
        os.close(descriptor)


def make_kind(kind: Any) -> Any:
    """A syncer of this kind."""
    try:
        return kind()
    except OSError:
        pytest.skip("this kernel offers no Linux AIO")


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
