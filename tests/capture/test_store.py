"""The store: what is appended is there, what is damaged is told, and nothing leaves the directory."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from otel_gym.capture.store import (
    CaptureStore,
    aggregate_model_call_metrics,
    read_model_call_records,
)
from otel_gym.counters import counted
from otel_gym.errors import CorruptRecordError, InvalidRolloutId, StoreError, StoreUnavailable
from tests.capture.calls import fork


@pytest.fixture
def store(tmp_path: Path) -> CaptureStore:
    return CaptureStore(tmp_path / "captures")


def test_records_come_back_in_order_with_their_places(store: CaptureStore) -> None:
    """`record` says where each line stands, and reading there gives the record."""
    written = [store.record("7-0", {"model_call_id": str(i), "n": i}) for i in range(5)]
    assert store.read("7-0") == [{"model_call_id": str(i), "n": i} for i in range(5)]
    data = store.path_for("7-0").read_bytes()
    for i, place in enumerate(written):
        line = data[place.offset_bytes : place.offset_bytes + place.length_bytes]
        assert line == b'{"model_call_id":"%d","n":%d}\n' % (i, i)
    assert [(o, n) for o, n, _ in store.iter_records("7-0")] == [
        (w.offset_bytes, w.length_bytes) for w in written
    ]


def test_a_missing_rollout_is_empty(store: CaptureStore) -> None:
    """A rollout without a file has no records and is not incomplete."""
    assert store.read("none") == []
    assert store.read_available("none") == ([], 0)
    assert list(store.iter_records("none")) == []
    assert read_model_call_records(store, "none") == []
    assert not store.is_incomplete("none")
    assert store.find("none", "x") is None


@pytest.mark.parametrize(
    "rollout_id",
    ["", ".", "..", ".hid", "a/b", "../x", "a\x00", "a\n", "x" * 201, "y.capture", "é", "a b"],
)
def test_ids_cannot_leave_the_directory(store: CaptureStore, rollout_id: str) -> None:
    """Every method refuses an id that is no plain file name, before it touches the disk."""
    before = sorted(store.root.rglob("*"))
    for call in (
        store.path_for,
        store.incomplete_path_for,
        store.mark_incomplete,
        store.is_incomplete,
        store.read,
        store.read_available,
        store.iter_lines,
        store.clear,
        store.pending,
        lambda name: store.record(name, {}),
        lambda name: store.find(name, "x"),
    ):
        with pytest.raises(InvalidRolloutId):
            call(rollout_id)
    assert sorted(store.root.rglob("*")) == before


def test_files_and_directories_are_private(store: CaptureStore) -> None:
    """Files are 0600 and directories 0700, whatever the umask."""
    old = os.umask(0)
    try:
        store.record("r", {"a": 1})
        store.mark_incomplete("r")
        store.clear("s")
    finally:
        os.umask(old)
    for path in [store.root, *store.root.rglob("*")]:
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_a_symbolic_link_is_refused(store: CaptureStore, tmp_path: Path) -> None:
    """A link at a rollout's path is neither read nor written through."""
    target = tmp_path / "elsewhere"
    target.write_text("")
    store.path_for("r").symlink_to(target)
    store.incomplete_path_for("r").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreUnavailable):
        store.record("r", {"a": 1})
    with pytest.raises(StoreError, match="not a regular file"):
        store.read("r")
    with pytest.raises(OSError):
        store.mark_incomplete("r")
    assert target.read_text() == ""
    assert not (tmp_path / "nowhere").exists()
    store.clear("r")
    assert store.record("r", {"a": 1}).offset_bytes == 0 and target.exists()


def test_a_pipe_is_refused_without_waiting(store: CaptureStore) -> None:
    """A named pipe at a rollout's path is an error and blocks nobody."""
    os.mkfifo(store.path_for("r"))
    with pytest.raises(StoreError):
        store.record("r", {"a": 1})
    with pytest.raises(StoreError):
        store.read("r")


def test_a_torn_tail_becomes_a_line_of_its_own(store: CaptureStore) -> None:
    """An append after a crash harms no neighbour: the torn bytes are one damaged line between whole ones."""
    store.record("r", {"n": 1})
    with store.path_for("r").open("ab") as file:
        file.write(b'{"n": 2, "cut')
    torn = counted("records.torn")
    written = store.record("r", {"n": 3})
    assert counted("records.torn") == torn + 1
    assert store.read("r", strict=False) == [{"n": 1}, {"n": 3}]
    assert store.read_available("r") == ([(0, {"n": 1}), (2, {"n": 3})], 1)
    damaged = [line for line in store.iter_lines("r") if line.record is None]
    assert [(line.number, line.offset_bytes) for line in damaged] == [(1, len(b'{"n":1}\n'))]
    data = store.path_for("r").read_bytes()
    assert data[written.offset_bytes :] == b'{"n":3}\n'


def test_strict_reading_names_the_damaged_line(store: CaptureStore) -> None:
    """Strict readers raise a typed error with line, byte offset and reason."""
    store.record("r", {"n": 1})
    with store.path_for("r").open("ab") as file:
        file.write(b'\n[1, 2]\n{"n": 2}\nnot json\n{"torn')
    with pytest.raises(CorruptRecordError, match=r"line 1 at byte 9: is not a JSON object") as one:
        store.read("r")
    assert (one.value.line_number, one.value.offset_bytes) == (1, 9)
    with pytest.raises(CorruptRecordError):
        read_model_call_records(store, "r")
    with pytest.raises(CorruptRecordError):
        aggregate_model_call_metrics(store, "r")
    reasons = [line.reason for line in store.iter_lines("r") if line.reason]
    assert reasons[0] == "is not a JSON object"
    assert reasons[1].startswith("is not JSON")
    assert reasons[2] == "is torn"


def test_derived_records_are_dense(store: CaptureStore) -> None:
    """`call_index` counts the records of a file from 0."""
    for i in range(3):
        store.record("r", {"model_call_id": str(i), "dialect": "chat"})
    assert [r.call_index for r in read_model_call_records(store, "r")] == [0, 1, 2]
    assert aggregate_model_call_metrics(store, "r")["num_calls"] == 3


def test_clear_removes_an_attempt_and_its_traces(store: CaptureStore) -> None:
    """After `clear` there is no file, no marker and no index; a second clear is harmless."""
    store.record("r", {"model_call_id": "a"})
    store.mark_incomplete("r")
    assert store.find("r", "a") is not None
    store.clear("r")
    store.clear("r")
    assert store.read("r") == []
    assert not store.is_incomplete("r")
    assert store.find("r", "a") is None
    assert list(store.rollouts()) == []
    store.record("r", {"model_call_id": "b"})
    assert store.read("r") == [{"model_call_id": "b"}]


def test_a_file_that_was_replaced_is_opened_anew(store: CaptureStore) -> None:
    """An open file whose path names another one now is not written to any more."""
    store.record("r", {"n": 1})
    store.path_for("r").rename(store.root / "moved")
    store.record("r", {"n": 2})
    assert store.read("r") == [{"n": 2}]
    assert (store.root / "moved").read_bytes() == b'{"n":1}\n'


def test_rollouts_are_those_with_records(store: CaptureStore) -> None:
    """`rollouts` lists ids in order and leaves out markers, stale files and foreign names."""
    for rollout_id in ("b-1", "a-0", "c"):
        store.record(rollout_id, {})
    store.mark_incomplete("d")
    (store.root / ".hid.capture.jsonl").touch()
    (store.root / "e.stale.jsonl").touch()
    assert list(store.rollouts()) == ["a-0", "b-1", "c"]


def test_a_deleted_directory_is_made_again(tmp_path: Path) -> None:
    """A store whose directory vanished writes into a new one."""
    store = CaptureStore(tmp_path / "captures")
    store.record("r", {"n": 1})
    for path in sorted(store.root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    store.root.rmdir()
    store.record("r", {"n": 2})
    assert store.read("r") == [{"n": 2}]


def test_a_root_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """A file in the directory's place is a typed error that names it."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file"):
        CaptureStore(tmp_path / "file")


def test_an_append_waits_for_the_lock(store: CaptureStore) -> None:
    """Who holds the lock is waited for, and the append lands after them."""
    store.record("r", {"n": 1})
    holder = os.open(store.path_for("r"), os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    thread = threading.Thread(target=store.record, args=("r", {"n": 3}))
    thread.start()
    time.sleep(0.05)
    os.lseek(holder, 0, os.SEEK_END)
    os.write(holder, b'{"n":2}\n')
    fcntl.flock(holder, fcntl.LOCK_UN)
    thread.join()
    os.close(holder)
    assert [r["n"] for r in store.read("r")] == [1, 2, 3]


def test_a_big_file_is_read_a_line_at_a_time(store: CaptureStore) -> None:
    """Reading holds one line, not the file: 200 MB pass through a few MB."""
    import tracemalloc

    line = b'{"n":1,"text":"' + b"x" * 200_000 + b'"}\n'
    with store.path_for("r").open("wb") as file:
        for _ in range(1000):
            file.write(line)
    tracemalloc.start()
    count = sum(1 for _ in store.iter_records("r"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 1000
    assert peak < 8_000_000


def test_forked_children_are_kept_apart(store: CaptureStore) -> None:
    """Processes forked with an open store lock against each other: each record stands where its `record` said, and none is lost."""
    store.record("r", {"model_call_id": "parent"})
    children = []
    for child in range(4):
        pid = fork()
        if pid == 0:
            code = 1
            try:
                for i in range(150):
                    written = store.record("r", {"model_call_id": f"{child}-{i}"})
                    with written.path.open("rb") as file:
                        file.seek(written.offset_bytes)
                        assert f'"{child}-{i}"'.encode() in file.read(written.length_bytes)
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    assert len(store.read("r")) == 601


def test_reading_can_start_at_a_line(store: CaptureStore) -> None:
    """`iter_records(start=...)` begins at that offset, as a cursor needs it."""
    written = [store.record("r", {"n": i}) for i in range(10)]
    rest = [r["n"] for _, _, r in store.iter_records("r", start=written[6].offset_bytes)]
    assert rest == [6, 7, 8, 9]


def test_the_index_is_checked_and_grows(store: CaptureStore) -> None:
    """A stale, wrong or broken index never gives a wrong answer."""
    for i in range(20):
        store.record("r", {"model_call_id": f"c{i}", "n": i})
    found = store.find("r", "c7")
    assert found is not None and found.record["n"] == 7
    index = store.layout.index / "r.json"
    good = index.read_bytes()
    store.record("r", {"model_call_id": "late", "n": 99})
    late = store.find("r", "late")
    assert late is not None and late.record["n"] == 99
    index.write_bytes(good.replace(b'"c7":[', b'"c7":[1'))
    found = store.find("r", "c7")
    assert found is not None and found.record["n"] == 7
    index.write_bytes(good.replace(b'"c7":', b'"gone":'))
    found = store.find("r", "c7")
    assert found is not None and found.record["n"] == 7
    index.write_bytes(b"\x00broken")
    assert store.find("r", "nobody") is None
    found = store.find("r", "c19")
    assert found is not None and found.record["n"] == 19


def test_the_index_is_not_needed(store: CaptureStore) -> None:
    """Where the index cannot be kept, the answer is found all the same."""
    store.record("r", {"model_call_id": "a"})
    store.layout.index.rmdir() if store.layout.index.exists() else None
    store.layout.private.mkdir(exist_ok=True)
    store.layout.index.write_text("in the way")
    assert store.find("r", "a") is not None
