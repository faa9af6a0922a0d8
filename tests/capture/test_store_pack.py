"""Packing: the original goes only when the pack holds the same bytes, and every reader takes both forms."""

from __future__ import annotations

import io
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import zstandard

from otel_gym.capture import pack, source
from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.packed import read_facts
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.writer import RecordWriter
from otel_gym.errors import StoreError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CaptureStore:
    monkeypatch.setattr(pack, "FRAME_BYTES", 10_000)
    return CaptureStore(tmp_path / "captures")


def fill(store: CaptureStore, count: int, start: int = 0) -> list[tuple[int, int, dict[str, Any]]]:
    chance = random.Random(start)
    for i in range(start, start + count):
        text = chance.randbytes(chance.randrange(600)).hex()
        store.record("r", {"model_call_id": f"c{i}", "text": text})
    return list(store.iter_records("r"))


def test_a_packed_rollout_reads_the_same(store: CaptureStore) -> None:
    """Records, offsets, index and ledger are the same before and after; the file is private and smaller."""
    before = fill(store, 100)
    original = store.path_for("r").read_bytes()
    outcome = pack.pack_rollout(store, "r", idle_s=0)
    assert (outcome.state, outcome.plain_bytes) == ("packed", len(original))
    assert not store.path_for("r").exists()
    assert list(store.iter_records("r")) == before
    assert list(store.rollouts()) == ["r"]
    for offset, length, record in (before[0], before[57], before[99]):
        entry = store.find("r", record["model_call_id"])
        assert entry is not None and (entry.offset_bytes, entry.length_bytes) == (offset, length)
        assert next(store.iter_records("r", start=offset)) == (offset, length, record)
    assert read_ledger(store).rollouts[0].recorded == 100
    assert store.packed_path_for("r").stat().st_mode & 0o777 == 0o600
    assert pack.pack_rollout(store, "r", idle_s=0).state == "already packed"


def test_any_zstd_reads_it_and_frames_are_seekable(store: CaptureStore) -> None:
    """The file is a plain zstd stream, and each frame of its seek table stands alone at a line's start."""
    fill(store, 100)
    original = store.path_for("r").read_bytes()
    pack.pack_rollout(store, "r", idle_s=0)
    packed = store.packed_path_for("r").read_bytes()
    stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed), read_across_frames=True)
    assert stream.read() == original
    descriptor = os.open(store.packed_path_for("r"), os.O_RDONLY)
    facts = read_facts(descriptor, store.packed_path_for("r"))
    os.close(descriptor)
    assert len(facts.frames) > 3
    at, offset = 0, 0
    for compressed, uncompressed in facts.frames:
        frame = zstandard.ZstdDecompressor().decompress(packed[at : at + compressed])
        assert frame == original[offset : offset + uncompressed] and frame.endswith(b"\n")
        at, offset = at + compressed, offset + uncompressed


def test_what_comes_after_packing_is_read_behind_it(store: CaptureStore) -> None:
    """A late record starts a new plain file whose offsets go on; packing again joins both."""
    fill(store, 20)
    pack.pack_rollout(store, "r", idle_s=0)
    written = store.record("r", {"model_call_id": "late"})
    records = list(store.iter_records("r"))
    assert len(records) == 21
    assert records[-1][:2] == (written.offset_bytes, written.length_bytes)
    entry = store.find("r", "late")
    assert entry is not None and entry.offset_bytes == written.offset_bytes
    pack.pack_rollout(store, "r", idle_s=0)
    assert list(store.iter_records("r")) == records
    store.clear("r")
    assert store.read("r") == [] and not store.packed_path_for("r").exists()


def test_a_crash_between_pack_and_removal_doubles_nothing(
    store: CaptureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where both forms hold the same bytes, they count once, also after further appends, and packing ends the matter."""
    before = fill(store, 30)

    def crash(path: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pack.os, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            pack.pack_rollout(store, "r", idle_s=0)
    assert store.path_for("r").exists() and store.packed_path_for("r").exists()
    assert list(store.iter_records("r")) == before
    other = CaptureStore(store.root)
    written = other.record("r", {"model_call_id": "more"})
    after = list(store.iter_records("r"))
    assert after[:-1] == before and after[-1][0] == written.offset_bytes
    pack.pack_rollout(store, "r", idle_s=0)
    assert list(store.iter_records("r")) == after
    assert not store.path_for("r").exists()


def test_a_pack_that_does_not_hold_the_bytes_is_thrown_away(
    store: CaptureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where reading back gives other bytes, the original stays and the pack goes."""
    before = fill(store, 10)
    monkeypatch.setattr(pack, "decompressed", lambda file: iter([b"something else"]))
    with pytest.raises(StoreError, match="original is kept"):
        pack.pack_rollout(store, "r", idle_s=0)
    assert list(store.iter_records("r")) == before
    assert [p.name for p in store.root.iterdir() if "zst" in p.name] == []


def test_an_open_rollout_is_left_alone(store: CaptureStore) -> None:
    """Nothing is packed that is being written: pending calls, a recent change, a torn end, a lock."""
    fill(store, 3)
    assert pack.pack_rollout(store, "r").state == "open"
    writer = RecordWriter(store.root)
    claim = writer.begin("r", "a" * 32)
    assert pack.pack_rollout(store, "r", idle_s=0).state == "open"
    writer.release(claim)
    writer.close(5)
    with store.path_for("r").open("ab") as file:
        file.write(b'{"torn')
    assert pack.pack_rollout(store, "r", idle_s=0).state == "open"
    assert pack.pack_rollout(store, "nobody", idle_s=0).state == "open"


def test_a_foreign_or_damaged_pack_is_said(store: CaptureStore) -> None:
    """A .zst that we did not make is an error that names it, and the ledger goes on to other rollouts."""
    store.packed_path_for("r").write_bytes(zstandard.compress(b'{"a":1}\n'))
    store.record("s", {"model_call_id": "x"})
    with pytest.raises(StoreError, match=r"r\.capture\.jsonl\.zst"):
        store.read("r")
    ledger = read_ledger(store)
    assert [(one.rollout_id, one.unreadable is None) for one in ledger.rollouts] == [
        ("r", False),
        ("s", True),
    ]
    assert not ledger.whole


def test_what_took_the_files_place_is_not_packed(
    store: CaptureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the rollout is cleared and begun anew while pack waits for the lock, the new attempt's file, which pack has not locked, stays untouched."""
    fill(store, 3)
    original = pack.lock

    def slow(descriptor: int, timeout_s: float) -> Any:
        monkeypatch.setattr(pack, "lock", original)
        other = CaptureStore(store.root)
        other.clear("r")
        other.record("r", {"model_call_id": "new"})
        return original(descriptor, timeout_s)

    monkeypatch.setattr(pack, "lock", slow)
    assert pack.pack_rollout(store, "r", idle_s=0).state == "open"
    assert store.path_for("r").exists() and not store.packed_path_for("r").exists()
    assert [one["model_call_id"] for one in store.read("r")] == ["new"]


def test_a_reader_between_two_packs_sees_each_record_once(
    store: CaptureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that was held up between opening the plain and the packed file, while both changed more than once, begins again."""
    fill(store, 5)
    original = source._open
    held_up = []

    def slow(path: Path) -> int | None:
        if path.name.endswith(".zst") and not held_up:
            held_up.append(path)
            other = CaptureStore(store.root)
            assert pack.pack_rollout(other, "r", idle_s=0).state == "packed"
            other.record("r", {"model_call_id": "later"})
            assert pack.pack_rollout(other, "r", idle_s=0).state == "packed"
        return original(path)

    monkeypatch.setattr(source, "_open", slow)
    names = [one["model_call_id"] for one in store.read("r")]
    assert held_up and names == [*(f"c{i}" for i in range(5)), "later"]


def test_a_line_longer_than_a_frame_is_packed_in_pieces(
    store: CaptureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame ends in the middle of a line that is longer than a frame may be, and every record is found all the same."""
    monkeypatch.setattr(pack, "LONGEST_FRAME_BYTES", 30_000)
    fill(store, 5)
    store.record("r", {"model_call_id": "long", "text": "x" * 3_000_000})
    store.record("r", {"model_call_id": "after"})
    before = list(store.iter_records("r"))
    assert pack.pack_rollout(store, "r", idle_s=0).state == "packed"
    descriptor = os.open(store.packed_path_for("r"), os.O_RDONLY)
    facts = read_facts(descriptor, store.packed_path_for("r"))
    os.close(descriptor)
    assert max(length for _, length in facts.frames) < 2_500_000
    assert list(store.iter_records("r")) == before
    for name in ("c4", "long", "after"):
        assert store.find("r", name) is not None


def test_who_appends_while_a_packed_rollout_is_cleared_counts_from_the_new_beginning(
    store: CaptureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets never count from a packed file that a clear removes: an append in the middle of the clear waits for its end."""
    fill(store, 5)
    assert pack.pack_rollout(store, "r", idle_s=0).state == "packed"
    other = CaptureStore(store.root)
    during = threading.Thread(target=other.record, args=("r", {"model_call_id": "during"}))
    original = CaptureStore._count_lines

    def slow(self: CaptureStore, path: Path, packed: Path) -> int:
        during.start()
        during.join(0.3)
        return original(self, path, packed)

    monkeypatch.setattr(CaptureStore, "_count_lines", slow)
    store.clear("r")
    during.join()
    written = other.record("r", {"model_call_id": "after"})
    places = {record["model_call_id"]: offset for offset, _, record in store.iter_records("r")}
    assert places["after"] == written.offset_bytes
