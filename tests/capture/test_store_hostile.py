"""Whatever stands in a capture directory, by damage or by malice: readers stay bounded, tell what is wrong, and go on."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from otel_gym.capture import open_files, source
from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.pack import pack_rollout
from otel_gym.capture.quick import PlainCalls, QuickCalls
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.writer import RecordWriter
from otel_gym.counters import counted
from otel_gym.errors import StoreError
from tests.capture.calls import finished_call


@pytest.fixture
def store(tmp_path: Path) -> CaptureStore:
    store = CaptureStore(tmp_path / "captures")
    for i in range(6):
        store.record("r", {"model_call_id": f"c{i}", "n": i})
    return store


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "lie",
    [
        {"end": -5, "places": {}},
        {"end": 2**70, "places": {}},
        {"end": 1e308, "places": {}},
        {"end": 7, "places": {}},
        {"end": 7, "places": [1]},
        {"end": 10**6, "places": {"c3": [-1, 10]}},
        {"end": 10**6, "places": {"c3": [0, -10]}},
        {"end": 10**6, "places": {"c3": [0, 10**13]}},
        {"end": 10**6, "places": {"c3": [1e30, 10]}},
        {"end": 10**6, "places": {"c3": "ab"}},
        {"end": 10**6, "places": {"c3": [0, 40]}},
        [1],
    ],
)
def test_no_index_can_lie(store: CaptureStore, lie: Any, packed: bool) -> None:
    """Whatever an index says, the answer is the right one and nothing fails."""
    assert store.find("r", "c1") is not None
    if packed:
        assert pack_rollout(store, "r", idle_s=0).state == "packed"
    (store.layout.index / "r.json").write_text(json.dumps(lie))
    found = store.find("r", "c3")
    assert found is not None and found.record["n"] == 3
    assert store.find("r", "none") is None


def test_an_index_that_is_a_pipe_blocks_nobody(store: CaptureStore) -> None:
    """A pipe in the index's place is passed over and replaced."""
    store.layout.index.mkdir(parents=True, exist_ok=True)
    os.mkfifo(store.layout.index / "r.json")
    found = store.find("r", "c3")
    assert found is not None and (store.layout.index / "r.json").is_file()


def test_the_last_record_is_found_without_its_newline(store: CaptureStore) -> None:
    """A record that readers see, because only its newline is missing, is found too, before and after the repair."""
    with store.path_for("r").open("ab") as file:
        file.write(b'{"model_call_id":"last"}')
    found = store.find("r", "last")
    assert found is not None and found.length_bytes == len(b'{"model_call_id":"last"}')
    store.record("r", {"model_call_id": "next"})
    for name in ("last", "next"):
        assert store.find("r", name) is not None


def test_readers_survive_what_network_file_systems_say_of_replaced_files(
    store: CaptureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where opening a file that was just replaced fails as stale, and closing one that was removed fails, as GlusterFS does, the records are read all the same."""
    refused: list[object] = []
    real_open, real_close = os.open, os.close

    def stale_once(path: Any, *arguments: Any) -> int:
        if str(path).endswith(".jsonl") and len(refused) < 2:
            refused.append(path)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return real_open(path, *arguments)

    def gone(descriptor: int) -> None:
        real_close(descriptor)
        refused.append("close")
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(os, "open", stale_once)
    monkeypatch.setattr(os, "close", gone)
    assert len(store.read("r")) == 6
    assert len(refused) == 3


def _put(path: Path, kind: str, victim: Path) -> None:
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "dangling link":
        path.symlink_to(path.parent / "nowhere")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        os.chdir(path.parent)  # the path of a socket may be 108 bytes long
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "directory", "socket"])
@pytest.mark.parametrize("form", ["plain", "packed"])
def test_only_regular_files_are_read(
    store: CaptureStore, tmp_path: Path, kind: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no regular file at a rollout's path is refused by readers with a typed error, told by the ledger, and (but for a directory) cleared."""
    monkeypatch.chdir(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text('{"model_call_id":"v"}\n')
    path = store.path_for("s") if form == "plain" else store.packed_path_for("s")
    _put(path, kind, victim)
    with pytest.raises(StoreError, match="not a regular file"):
        store.read("s")
    ledger = read_ledger(store)
    assert {one.rollout_id: one.unreadable is None for one in ledger.rollouts} == {
        "r": True,
        "s": False,
    }
    if kind != "directory":
        store.clear("s")
        assert store.record("s", {"model_call_id": "x"}).offset_bytes == 0
        assert [one["model_call_id"] for one in store.read("s")] == ["x"]
    assert victim.read_text() == '{"model_call_id":"v"}\n'


def test_a_fence_that_is_a_pipe_blocks_nobody(store: CaptureStore) -> None:
    """A pipe in the place of a generation file is an error of that rollout; the ledger goes on to the others."""
    store.clear("other")
    os.mkfifo(store.layout.generations / "s")
    with pytest.raises(OSError):
        store.clear("s")
    ledger = read_ledger(store)
    assert {one.rollout_id: one.unreadable is None for one in ledger.rollouts} == {
        "r": True,
        "other": True,
        "s": False,
    }


@pytest.mark.parametrize("packed", [False, True])
def test_junk_without_end_is_passed_over_in_bounded_memory(
    store: CaptureStore, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    """A line that does not begin like a record, such as a hole of NULs, costs no memory, and what stands behind it is read, found and packed."""
    monkeypatch.setattr(source, "_JUNK_BYTES", 1 << 20)
    store.close()
    path = store.path_for("r")
    size = path.stat().st_size
    hole = 256 << 20
    os.truncate(path, size + hole)
    with path.open("ab") as file:
        file.write(b"\n")
    store.record("r", {"model_call_id": "behind"})
    if packed:
        assert pack_rollout(store, "r", idle_s=0, level=1).state == "packed"
    import tracemalloc

    tracemalloc.start()
    lines = list(store.iter_lines("r"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [line.record is None for line in lines] == [False] * 6 + [True, False]
    assert (lines[6].offset_bytes, lines[6].length_bytes) == (size, hole + 1)
    assert peak < 16 << 20
    found = store.find("r", "behind")
    assert found is not None and found.offset_bytes == size + hole + 1


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_configured_modes_hold_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """A group that shall read everything can: the store's own files and directories have exactly the configured modes."""
    old = os.umask(umask)
    try:
        store = CaptureStore(tmp_path / "captures", file_mode=0o660, directory_mode=0o770)
        store.record("r", {"model_call_id": "a"})
        store.mark_incomplete("r")
        store.find("r", "a")
        store.record("p", {"model_call_id": "b"})
        pack_rollout(store, "p", idle_s=0)
        store.clear("c")
    finally:
        os.umask(old)
    for path in [store.root, *store.root.rglob("*")]:
        wanted = 0o770 if path.is_dir() else 0o660
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_damaged_evidence_of_producers_is_told(store: CaptureStore) -> None:
    """A status or claims file that is damaged or unreadable is named, and the directory is not called whole; the rest is accounted for."""

    async def go() -> None:
        writer = RecordWriter(store.root)
        facts = finished_call("w")
        assert await writer.write(facts, writer.begin("w", facts.model_call_id))
        writer.close(5)

    asyncio.run(go())
    assert read_ledger(store).whole
    [status] = store.layout.producers.glob("*.json")
    status.write_bytes(b"{")
    (store.layout.producers / "pipe.json").touch()
    (store.layout.claims / "x.claims").mkdir()
    (store.layout.claims / "y.claims").write_bytes(b"\xff" * 1024)
    ledger = read_ledger(store)
    assert set(ledger.unusable) == {status.name, "pipe.json", "x.claims", "y.claims"}
    assert not ledger.whole and ledger.as_mapping()["unusable"] == ledger.unusable
    assert {one.rollout_id: one.recorded for one in ledger.rollouts} == {"r": 6, "w": 1}


def test_records_of_others_do_not_stand_in_for_lost_ones(store: CaptureStore) -> None:
    """Lines that no producer of ours has claimed, as NeMo Gym's, cannot make up for a file that somebody removed."""

    async def go() -> None:
        writer = RecordWriter(store.root)
        for _ in range(3):
            facts = finished_call("w")
            assert await writer.write(facts, writer.begin("w", facts.model_call_id))
        writer.close(5)

    asyncio.run(go())
    store.path_for("w").unlink()
    assert len(store.read("r")) == 6
    assert read_ledger(store).begun_unaccounted == 3


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_pack_during_an_opening_moves_no_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A pack that ends just before or just after the plain file is opened leaves the next record's offset true."""
    store = CaptureStore(tmp_path)
    store.record("r", {"model_call_id": "a" * 32})
    store.close()
    original = open_files.Appender

    def opening(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(open_files, "Appender", original)
        if moment == "after":
            opened = original(*arguments, **options)
        assert pack_rollout(CaptureStore(tmp_path), "r", idle_s=0).state == "packed"
        return opened if moment == "after" else original(*arguments, **options)

    monkeypatch.setattr(open_files, "Appender", opening)
    written = store.record("r", {"model_call_id": "b" * 32})
    [line] = [
        line
        for line in store.iter_lines("r")
        if line.record is not None and line.record["model_call_id"] == "b" * 32
    ]
    assert written.offset_bytes == line.offset_bytes > 0


def test_a_damaged_pack_keeps_no_record_from_being_written(tmp_path: Path) -> None:
    """What comes after a packed file was damaged is written beside it, and counted."""
    store = CaptureStore(tmp_path)
    store.packed_path_for("r").write_bytes(b"damaged")
    failures = counted("store.failures")
    store.record("r", {"model_call_id": "a" * 32})
    assert store.path_for("r").read_bytes().count(b"\n") == 1
    assert counted("store.failures") == failures + 1


def test_a_stale_file_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a network file system says that an open file is stale, the record goes into the file that the path names."""
    store = CaptureStore(tmp_path)
    store.record("r", {"model_call_id": "a" * 32})
    stale = [True]
    for kind in (PlainCalls, QuickCalls):
        original = kind.look

        def look(self: Any, path: bytes, original: Any = original) -> Any:
            if stale.pop() if stale else False:
                raise OSError(errno.ESTALE, "Stale file handle")
            return original(self, path)

        monkeypatch.setattr(kind, "look", look)
    store.record("r", {"model_call_id": "b" * 32})
    assert not stale
    assert [record["model_call_id"][0] for record in store.read("r")] == ["a", "b"]


def test_a_pipe_among_the_claims_holds_nobody_up(store: CaptureStore) -> None:
    """What is no regular file among the claims is told by doctor and by whoever waits for calls, without waiting for a writer of it."""
    store.layout.claims.mkdir(parents=True, exist_ok=True)
    os.mkfifo(store.layout.claims / "x.claims")
    ledger = read_ledger(store)
    assert not ledger.whole and "is not a regular file" in ledger.unusable["x.claims"]
    with pytest.raises(StoreError):
        store.pending("r")
