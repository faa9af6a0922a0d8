"""The writer: durable before answered, nothing lost silently, and no exchange ever fails for it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_gym.capture import appender, flusher, line_maker, syncing
from otel_gym.capture.claims import Claim
from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.syncing import Entry, ParallelSyncer, SequentialSyncer
from otel_gym.capture.writer import FLUSHERS, RecordWriter
from otel_gym.capture.written import Written
from otel_gym.counters import counted
from tests.capture.calls import finished_call, fork, ids_in


@pytest.fixture
def make_writer(tmp_path: Path) -> Iterator[Callable[..., RecordWriter]]:
    writers: list[RecordWriter] = []

    def make(**options: Any) -> RecordWriter:
        writers.append(RecordWriter(tmp_path / "captures", **options))
        return writers[-1]

    yield make
    for writer in writers:
        writer.close(5)


async def write(writer: RecordWriter, rollout_id: str, **options: Any) -> Written | None:
    """One call from claim to record."""
    facts = finished_call(rollout_id, **options)
    claim = writer.begin(rollout_id, facts.model_call_id)
    return await writer.write(facts, claim)


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


class Disk:
    """The file operations of appends, with a fault that can be switched on."""

    def __init__(self) -> None:
        self.fault: int | None = None
        self.short = False
        self.blocked = threading.Event()
        self.blocked.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, descriptor: int, data: bytes) -> int:
        self.blocked.wait(30)
        if self.fault is not None:
            if self.short:
                os.write(descriptor, bytes(data)[: len(data) // 2])
            raise OSError(self.fault, os.strerror(self.fault))
        return os.write(descriptor, data)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    faulty = Disk()
    monkeypatch.setattr(appender, "os", faulty)
    monkeypatch.setattr(syncing, "os", faulty)
    original = ParallelSyncer.submit

    def submit(self: ParallelSyncer, entries: Sequence[Entry]) -> None:
        # The kernel's own writes cannot be made to fail from here: with a fault they are made one by one.
        faulty.blocked.wait(30)
        if faulty.fault is None:
            original(self, entries)
        else:
            self._ended += syncing._one_by_one(entries)

    monkeypatch.setattr(ParallelSyncer, "submit", submit)
    yield faulty
    faulty.fault = None
    faulty.blocked.set()


async def test_a_record_is_on_disk_when_write_returns(make_writer: Any) -> None:
    """What `write` returns names the line, and the claim is settled by then."""
    writer = make_writer()
    facts = finished_call("r")
    claim = writer.begin("r", facts.model_call_id)
    assert [c.model_call_id for c in writer.store.pending("r")] == [facts.model_call_id]
    written = await writer.write(facts, claim)
    assert written is not None
    data = written.path.read_bytes()
    line = data[written.offset_bytes : written.offset_bytes + written.length_bytes]
    assert line == data and line.endswith(b"\n")
    assert writer.store.read("r") == [dict(written.record)]
    assert writer.store.pending() == []


async def test_calls_of_one_rollout_share_syncs(
    make_writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred waiting calls of one rollout cost a few syncs, and their offsets are right."""
    syncs: list[Entry] = []
    for kind in (ParallelSyncer, SequentialSyncer):
        original = kind.submit

        def submit(self: Any, files: Any, original: Any = original) -> None:
            syncs.extend(files)
            original(self, files)

        monkeypatch.setattr(kind, "submit", submit)
    writer = make_writer()
    places = await asyncio.gather(*(write(writer, "r") for _ in range(100)))
    assert len(syncs) < 30
    by_offset = {p.offset_bytes: p for p in places}
    for offset, length, record in writer.store.iter_records("r"):
        assert by_offset[offset].length_bytes == length
        assert by_offset[offset].record["model_call_id"] == record["model_call_id"]
    assert len(by_offset) == 100


async def test_many_rollouts_at_once(make_writer: Any) -> None:
    """Calls of many rollouts are each in their own file, once."""
    writer = make_writer()
    await asyncio.gather(*(write(writer, f"r{i % 50}") for i in range(500)))
    assert sorted(writer.store.rollouts()) == sorted(f"r{i}" for i in range(50))
    assert all(len(set(ids_in(writer.store.path_for(f"r{i}")))) == 10 for i in range(50))
    assert read_ledger(writer.store).whole


async def test_sequential_syncs_do_the_same(
    make_writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel offers no parallel sync, threads of plain fdatasync do the work."""
    monkeypatch.setattr(flusher, "make_syncer", SequentialSyncer)
    writer = make_writer(flushers=4)
    await asyncio.gather(*(write(writer, f"r{i % 5}") for i in range(50)))
    assert sum(len(ids_in(writer.store.path_for(f"r{i}"))) for i in range(5)) == 50


async def test_cancelling_the_request_loses_nothing(make_writer: Any, disk: Disk) -> None:
    """A cancelled wait, even one whose record is not yet taken up, still becomes a record."""
    writer = make_writer()
    disk.blocked.clear()
    tasks = [asyncio.create_task(write(writer, "r")) for _ in range(20)]
    await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() for task in tasks)
    disk.blocked.set()
    await asyncio.to_thread(eventually, lambda: writer.waiting == 0, "records of cancelled calls")
    assert len(ids_in(writer.store.path_for("r"))) == 20
    assert not writer.store.is_incomplete("r")


async def test_a_closed_event_loop_loses_nothing(make_writer: Any, disk: Disk) -> None:
    """A loop that ends while a record waits takes nothing with it."""
    writer = make_writer()
    disk.blocked.clear()

    def other_loop() -> None:
        async def go() -> None:
            task = asyncio.create_task(write(writer, "r"))
            await asyncio.sleep(0.01)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        asyncio.run(go())

    await asyncio.to_thread(other_loop)
    disk.blocked.set()
    assert writer.close(10)
    assert len(ids_in(writer.store.path_for("r"))) == 1


async def test_a_slow_disk_is_waited_for_only_so_long(make_writer: Any, disk: Disk) -> None:
    """Past the bound the response goes, the rollout is marked, and the record comes later, counted as late."""
    writer = make_writer(durability_timeout_s=0.05)
    incomplete, late = counted("records.incomplete"), counted("records.late")
    disk.blocked.clear()
    assert await write(writer, "r") is None
    await asyncio.to_thread(eventually, lambda: writer.store.is_incomplete("r"), "marker")
    assert counted("records.incomplete") == incomplete + 1
    assert len(writer.store.pending("r")) == 1
    disk.blocked.set()
    await asyncio.to_thread(eventually, lambda: writer.waiting == 0, "the late record")
    assert len(ids_in(writer.store.path_for("r"))) == 1
    assert counted("records.late") == late + 1
    assert writer.store.pending("r") == []


async def test_a_slow_sync_is_no_record(make_writer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that was appended and whose sync does not end is not durable: the bound ends the waiting without a record."""
    ended = threading.Event()
    for kind in (ParallelSyncer, SequentialSyncer):
        original = kind.reap

        def reap(self: Any, least: int, original: Any = original) -> Any:
            outcome = original(self, least)
            ended.wait(30)
            return outcome

        monkeypatch.setattr(kind, "reap", reap)
    writer = make_writer(durability_timeout_s=0.05)
    incomplete, late = counted("records.incomplete"), counted("records.late")
    try:
        assert await write(writer, "r") is None
        assert len(ids_in(writer.store.path_for("r"))) == 1
        await asyncio.to_thread(eventually, lambda: writer.store.is_incomplete("r"), "marker")
        assert counted("records.incomplete") == incomplete + 1
    finally:
        ended.set()
    await asyncio.to_thread(eventually, lambda: writer.waiting == 0, "the late record")
    assert counted("records.late") == late + 1
    assert len(ids_in(writer.store.path_for("r"))) == 1


async def test_a_full_queue_gives_up_with_evidence(make_writer: Any, disk: Disk) -> None:
    """Calls beyond the queue's bound wait for room as long as they may, and are then lost and named."""
    writer = make_writer(durability_timeout_s=0.1, queue_max_bytes=10_000)
    lost = counted("records.lost")
    disk.blocked.clear()
    first = [asyncio.create_task(write(writer, f"blocked{i}")) for i in range(FLUSHERS)]
    await asyncio.sleep(0.05)
    outcome = await asyncio.gather(*(write(writer, "r", prompt="y" * 3000) for _ in range(8)))
    assert outcome == [None] * 8
    await asyncio.gather(*first)
    disk.blocked.set()
    await asyncio.to_thread(eventually, lambda: writer.waiting == 0, "what was admitted")
    given_up = counted("records.lost") - lost
    assert given_up > 0
    writer.close(5)
    account = {a.rollout_id: a for a in read_ledger(writer.store).rollouts}["r"]
    assert (account.recorded, account.lost) == (8 - given_up, given_up)
    assert account.incomplete_marker and not account.whole


async def test_room_in_the_queue_is_waited_for(make_writer: Any, disk: Disk) -> None:
    """A queue that empties in time loses nothing, however full it was."""
    writer = make_writer(queue_max_bytes=5_000)
    disk.blocked.clear()
    tasks = [asyncio.create_task(write(writer, "r", prompt="y" * 3000)) for _ in range(8)]
    await asyncio.sleep(0.05)
    disk.blocked.set()
    assert all(await asyncio.gather(*tasks))
    assert len(ids_in(writer.store.path_for("r"))) == 8


@pytest.mark.parametrize("short", [False, True])
async def test_an_io_error_never_reaches_the_request(
    make_writer: Any, disk: Disk, short: bool
) -> None:
    """On EIO, even after half a line, the request goes on at once; the evidence stands; the record follows when the disk is back."""
    writer = make_writer(durability_timeout_s=30)
    assert await write(writer, "r") is not None
    disk.fault, disk.short = errno.EIO, short
    began = time.monotonic()
    assert await write(writer, "r") is None
    assert await write(writer, "s") is None
    assert time.monotonic() - began < 20
    await asyncio.to_thread(
        eventually,
        lambda: writer.store.is_incomplete("r") and writer.store.is_incomplete("s"),
        "markers",
    )
    disk.fault = None
    await asyncio.to_thread(eventually, lambda: writer.waiting == 0, "recovery")
    assert len(ids_in(writer.store.path_for("r"))) == 2
    assert len(ids_in(writer.store.path_for("s"))) == 1
    assert await write(writer, "r") is not None
    assert writer.store.pending() == []


async def test_a_failing_sync_is_taken_back(
    make_writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fdatasync nobody knows what is on disk: the append is cut off and made again, so no record stands twice."""
    broken = [True]
    for kind in (ParallelSyncer, SequentialSyncer):
        original = kind.reap

        def reap(self: Any, least: int, original: Any = original) -> Any:
            ended = original(self, least)
            if broken[0]:
                return [one._replace(error=OSError(errno.EIO, "broken")) for one in ended]
            return ended

        monkeypatch.setattr(kind, "reap", reap)
    writer = make_writer()
    assert await write(writer, "r") is None
    assert writer.store.read("r") == []
    broken[0] = False
    await asyncio.to_thread(eventually, lambda: writer.waiting == 0, "recovery")
    assert len(ids_in(writer.store.path_for("r"))) == 1


async def test_a_record_that_cannot_be_made_is_evidence(
    make_writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in making one record loses that one visibly, and its neighbours in the batch nothing."""
    original = line_maker.build_raw_record

    def build(facts: Any) -> Any:
        if facts.model_call_id == "bad":
            raise ValueError("cannot")
        return original(facts)

    monkeypatch.setattr(line_maker, "build_raw_record", build)
    writer = make_writer()
    outcome = await asyncio.gather(
        write(writer, "r"), write(writer, "r", call_id="bad"), write(writer, "r")
    )
    assert [o is None for o in outcome] == [False, True, False]
    assert await write(writer, "q", call_id="bad") is None
    writer.close(5)
    assert writer.waiting == 0
    accounts = {a.rollout_id: a for a in read_ledger(writer.store).rollouts}
    assert (accounts["r"].recorded, accounts["r"].lost) == (2, 1)
    assert (accounts["q"].recorded, accounts["q"].lost) == (0, 1)
    assert accounts["r"].incomplete_marker and accounts["q"].incomplete_marker


async def test_listeners_hear_of_durable_records(make_writer: Any) -> None:
    """A listener gets each record once, off the event loop; one that fails harms nobody."""
    heard: list[tuple[str, str]] = []

    def failing(_: Written) -> None:
        raise RuntimeError("no")

    writer = make_writer()
    writer.add_listener(failing)
    writer.add_listener(lambda w: heard.append((w.rollout_id, threading.current_thread().name)))
    failures = counted("capture.failures")
    for _ in range(3):
        assert await write(writer, "r") is not None
    await asyncio.to_thread(eventually, lambda: len(heard) == 3, "listeners")
    assert {name.rpartition("-")[0] for _, name in heard} == {"otel-gym-flusher"}
    assert counted("capture.failures") == failures + 3


async def test_a_straggler_of_a_cleared_attempt_is_kept_apart(make_writer: Any) -> None:
    """A call that began before the clear goes to the stale file; one that began after it to the new attempt."""
    writer = make_writer()
    old = finished_call("r")
    old_claim = writer.begin("r", old.model_call_id)
    writer.store.clear("r")
    late = await writer.write(old, old_claim)
    assert late is not None and late.stale and late.path.name == "r.stale.jsonl"
    assert not writer.store.path_for("r").exists()
    new = finished_call("r")
    new_claim = writer.begin("r", new.model_call_id)
    other = finished_call("r")
    written = await asyncio.gather(writer.write(new, new_claim), writer.write(other, old_claim))
    assert [w.stale for w in written if w] == [False, True]
    assert ids_in(writer.store.path_for("r")) == [new.model_call_id]
    stale = [line.record["model_call_id"] for line in writer.store.iter_stale("r") if line.record]
    assert stale == [old.model_call_id, other.model_call_id]


async def test_a_clear_between_two_writes_is_seen(make_writer: Any) -> None:
    """An open file does not outlive a clear: the next record is in the new file, and old calls are stale."""
    writer = make_writer()
    await write(writer, "r")
    facts = finished_call("r")
    claim = writer.begin("r", facts.model_call_id)
    writer.store.clear("r")
    assert (await write(writer, "r")) is not None
    straggler = await writer.write(facts, claim)
    assert straggler is not None and straggler.stale
    assert len(writer.store.read("r")) == 1


async def test_another_process_holding_the_lock_stops_only_its_rollout(make_writer: Any) -> None:
    """A stopped process that holds one file's lock costs that rollout its bound, and the others nothing."""
    writer = make_writer(durability_timeout_s=0.3)
    await write(writer, "held")
    holder = os.open(writer.store.path_for("held"), os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    waiting = [asyncio.create_task(write(writer, "held")) for _ in range(3)]
    await asyncio.sleep(0.02)
    assert all(await asyncio.gather(*(write(writer, f"free{i}") for i in range(20))))
    assert await asyncio.gather(*waiting) == [None] * 3
    os.close(holder)
    await asyncio.to_thread(eventually, lambda: writer.waiting == 0, "the lock's release")
    assert len(ids_in(writer.store.path_for("held"))) == 4


async def test_closing_drains(make_writer: Any) -> None:
    """`close` writes what waits, settles the claims and leaves a closed status."""
    writer = make_writer()
    tasks = [asyncio.create_task(write(writer, "r")) for _ in range(50)]
    await asyncio.sleep(0)
    assert await asyncio.to_thread(writer.close, 10)
    assert all(await asyncio.gather(*tasks))
    ledger = read_ledger(writer.store)
    assert ledger.whole and ledger.producers_live == 0 and ledger.producers_dead == 0
    assert list(writer.store.layout.claims.iterdir()) == []


async def test_closing_on_a_dead_disk_leaves_evidence(make_writer: Any, disk: Disk) -> None:
    """What cannot be written by the end is named as lost, and a write after the end is too."""
    writer = make_writer()
    disk.fault = errno.ENOSPC
    assert await write(writer, "r") is None
    assert not await asyncio.to_thread(writer.close, 0.2)
    assert await write(writer, "r") is None
    account = read_ledger(writer.store).rollouts[0]
    assert (account.recorded, account.lost, account.incomplete_marker) == (0, 2, True)


async def test_closing_answers_who_still_waits(make_writer: Any, disk: Disk) -> None:
    """An exchange whose record is given up at the end is answered, and does not wait for ever."""
    writer = make_writer()
    disk.blocked.clear()
    held = [asyncio.create_task(write(writer, "held")) for _ in range(FLUSHERS)]
    await asyncio.sleep(0.05)
    behind = asyncio.create_task(write(writer, "behind"))
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(asyncio.to_thread(writer.close, 0.1))
    assert await asyncio.wait_for(behind, 20) is None
    disk.blocked.set()
    await closing
    await asyncio.gather(*held)


async def test_what_was_not_captured_is_in_the_status(make_writer: Any) -> None:
    """Unprefixed calls and invalid ids are counted in the producer's file."""
    writer = make_writer()
    writer.note_unprefixed()
    writer.note_unprefixed()
    writer.note_invalid_id("../evil")
    writer.close(5)
    ledger = read_ledger(writer.store)
    assert ledger.unprefixed == 2
    assert ledger.invalid_ids == {"../evil": 1}
    assert not ledger.whole


async def test_a_released_claim_leaves_no_trace(make_writer: Any) -> None:
    """A call that needs no record does not count as begun."""
    writer = make_writer()
    writer.release(writer.begin("r", "a" * 32))
    assert writer.store.pending() == []
    assert read_ledger(writer.store).whole


async def test_redacted_fields_never_reach_the_disk(make_writer: Any) -> None:
    """What `redact` names is replaced in the line and in what listeners hear, and the record says so."""
    writer = make_writer(redact=["request.messages[*].content", "$.response..content"])
    written = await write(writer, "r", prompt="the secret")
    assert written is not None
    data = written.path.read_bytes()
    assert b"the secret" not in data and b'"yes"' not in data
    assert written.record["request"]["messages"][0]["content"] == "[redacted]"
    assert written.record["redacted"] == [
        "$.response..content",
        "request.messages[*].content",
    ]


async def test_an_unwritable_directory_serves_all_the_same(
    tmp_path: Path, make_writer: Any
) -> None:
    """Where not even claims can be kept, calls are counted and served; all works once the cause is gone."""
    writer = make_writer(durability_timeout_s=5)
    (tmp_path / "captures" / ".otel-gym").write_text("in the way")
    failed = counted("claims.failed")
    claim = writer.begin("r", "a" * 32)
    assert isinstance(claim, Claim) and claim.slot == 0
    assert counted("claims.failed") == failed + 1
    (tmp_path / "captures" / ".otel-gym").unlink()
    assert await write(writer, "r") is not None
    await asyncio.to_thread(
        eventually, lambda: writer.store.layout.producers.is_dir(), "the private directories"
    )


def test_a_forked_child_has_a_writer_of_its_own(make_writer: Any) -> None:
    """After a fork both processes write, each with its own claims; neither disturbs the other."""
    writer = make_writer()
    held = writer.begin("parent", "p" * 32)
    asyncio.run(_write_some(writer, "shared", 10))
    pid = fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(_write_some(writer, "shared", 10))
            asyncio.run(_write_some(writer, "child", 5))
            writer.begin("child", "c" * 32)
            code = 0
        finally:
            os._exit(code)
    asyncio.run(_write_some(writer, "shared", 10))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(set(ids_in(writer.store.path_for("shared")))) == 30
    pending = {c.model_call_id: c.alive for c in writer.store.pending()}
    assert pending == {"p" * 32: True, "c" * 32: False}
    writer.release(held)


def test_locks_of_the_parent_survive_a_childs_end(make_writer: Any) -> None:
    """A forked child that closes the inherited files does not release the parent's lock."""
    writer = make_writer()
    asyncio.run(_write_some(writer, "r", 1))
    open_file = writer._files.take("r")
    assert open_file.try_lock() is not None
    writer._files.give_back(open_file)
    pid = fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    other = os.open(writer.store.path_for("r"), os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    open_file.unlock()


async def test_waiting_for_a_rollout(make_writer: Any) -> None:
    """`await_quiescence` ends when the last call settles, and tells of calls whose producer is dead."""
    writer = make_writer()
    store = CaptureStore(writer.root)
    facts = finished_call("r")
    claim = writer.begin("r", facts.model_call_id)
    outcome = await asyncio.to_thread(store.await_quiescence, "r", 0.05)
    assert not outcome and [c.model_call_id for c in outcome.pending] == [facts.model_call_id]
    waiting = asyncio.create_task(asyncio.to_thread(store.await_quiescence, "r", 30))
    await writer.write(facts, claim)
    assert (await waiting).settled
    pid = fork()
    if pid == 0:
        writer.begin("r", "d" * 32)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    outcome = await asyncio.to_thread(store.await_quiescence, "r", 30)
    assert outcome.settled
    assert [(c.model_call_id, c.alive) for c in outcome.pending] == [("d" * 32, False)]
    store.clear("r")
    assert store.await_quiescence("r", 0).pending == ()


async def _write_some(writer: RecordWriter, rollout_id: str, count: int) -> None:
    assert all(await asyncio.gather(*(write(writer, rollout_id) for _ in range(count))))
