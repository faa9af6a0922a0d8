"""What the storage does to us, for real: the request is unaffected, the loss is in evidence, and all is well once the cause is gone."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_gym.capture.ledger import RolloutLedger, read_ledger
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.writer import RecordWriter
from otel_gym.capture.written import Written
from tests.capture.calls import finished_call, ids_in
from tests.reliability.mounts import Mount, run

ROOT = Path(__file__).resolve().parents[2]
BOUND_S = 20.0
"""The durability bound of these tests: an answer that waits for it is not unaffected."""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    point = Mount(tmp_path / "mount")
    yield point
    point.close()


async def write(writer: RecordWriter, rollout_id: str, prompt: str = "x") -> Written | None:
    """One call; it must not wait for the bound."""
    facts = finished_call(rollout_id, prompt=prompt)
    began = time.monotonic()
    written = await writer.write(facts, writer.begin(rollout_id, facts.model_call_id))
    assert time.monotonic() - began < BOUND_S
    return written


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


def account(store: CaptureStore, rollout_id: str) -> RolloutLedger:
    """The rollout's line of the ledger."""
    return {one.rollout_id: one for one in read_ledger(store).rollouts}[rollout_id]


async def test_a_full_disk(mount: Mount) -> None:
    """On a full tmpfs calls go on, claims still work, the rollout is marked, no line is torn, and the records follow when there is room."""
    mount.tmpfs("size=1m")
    writer = RecordWriter(mount.path / "captures", durability_timeout_s=BOUND_S * 2)
    ballast = mount.path / "ballast"
    try:
        assert await write(writer, "r") is not None
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"\0" * 4096)
        outcome = [await write(writer, "r", "y" * 20_000) for _ in range(10)]
        assert outcome.count(None) >= 8
        missing = outcome.count(None)
        assert len([c for c in writer.store.pending("r") if c.alive]) == missing
        assert len(writer.store.read("r")) == 11 - missing
        ballast.unlink()
        await until(lambda: writer.waiting == 0, "the records that had waited")
        await until(lambda: writer.store.is_incomplete("r"), "the marker")
        assert len(set(ids_in(writer.store.path_for("r")))) == 11
        assert await write(writer, "r") is not None
        after = account(writer.store, "r")
        assert (after.recorded, after.missing, after.incomplete_marker) == (12, 0, True)
    finally:
        writer.close(5)


async def test_no_inodes_left(mount: Mount) -> None:
    """Where no file can be created, rollouts that have one go on, new ones are in evidence, and their records follow."""
    mount.tmpfs("size=4m,nr_inodes=40")
    writer = RecordWriter(mount.path / "captures", durability_timeout_s=BOUND_S * 2)
    try:
        assert await write(writer, "old") is not None
        made = 0
        with pytest.raises(OSError):
            while True:
                (mount.path / f"ballast{made}").touch()
                made += 1
        assert await write(writer, "new") is None
        assert await write(writer, "old") is not None
        assert [c.rollout_id for c in writer.store.pending()] == ["new"]
        for i in range(made):
            (mount.path / f"ballast{i}").unlink()
        await until(lambda: writer.waiting == 0, "the record that had waited")
        await until(lambda: writer.store.is_incomplete("new"), "the marker")
        assert len(ids_in(writer.store.path_for("new"))) == 1
        assert writer.store.pending() == []
    finally:
        writer.close(5)


async def test_a_file_system_that_turned_read_only(mount: Mount, tmp_path: Path) -> None:
    """When the kernel makes the file system read-only after an error, calls go on; nothing is written below
    the empty mount point, and on the repaired file system everything arrives."""
    image, repaired = tmp_path / "image", tmp_path / "repaired"
    mount.ext4(image)
    writer = RecordWriter(mount.path / "captures", durability_timeout_s=BOUND_S * 2)
    try:
        assert await write(writer, "r") is not None
        mount.remount("abort")
        assert await write(writer, "r") is None
        assert await write(writer, "s") is None
        shutil.copyfile(image, repaired)
        run_repair(repaired)
        mount.detach()
        await asyncio.sleep(0.3)  # several attempts fall into the gap
        assert list(mount.path.iterdir()) == []
        mount.ext4(repaired)
        await until(lambda: writer.waiting == 0, "the records that had waited")
        await until(
            lambda: writer.store.is_incomplete("r") and writer.store.is_incomplete("s"), "markers"
        )
        assert len(ids_in(writer.store.path_for("r"))) == 2
        assert len(ids_in(writer.store.path_for("s"))) == 1
        assert await write(writer, "r") is not None
    finally:
        writer.close(5)


def run_repair(image: Path) -> None:
    """Check and repair an image; e2fsck says by its exit code that it repaired something."""
    subprocess.run(["e2fsck", "-fy", str(image)], capture_output=True, check=False, timeout=60)


async def test_a_disk_that_hangs(mount: Mount, tmp_path: Path) -> None:
    """While the file system is frozen the response is released at the bound and the event loop turns; the records arrive after the thaw."""
    if shutil.which("fsfreeze") is None:
        pytest.skip("fsfreeze is not installed")
    mount.ext4(tmp_path / "image")
    writer = RecordWriter(mount.path / "captures", durability_timeout_s=0.5)
    try:
        assert await write(writer, "r") is not None
        claims = [writer.begin("r", f"{i:032x}") for i in range(4)]
        run("fsfreeze", "-f", mount.path)
        try:
            facts = [finished_call("r", call_id=f"{i:032x}") for i in range(4)]
            calls = [
                asyncio.create_task(writer.write(f, c)) for f, c in zip(facts, claims, strict=True)
            ]
            turns = 0
            while not all(call.done() for call in calls):
                await asyncio.sleep(0.01)
                turns += 1
            assert turns > 10
            assert [call.result() for call in calls] == [None] * 4
            await asyncio.sleep(
                1.0
            )  # by now the stall is known, and a claim does not wait for the disk
            assert writer.begin("r", "f" * 32).slot == 0
        finally:
            run("fsfreeze", "-u", mount.path)
        await until(lambda: writer.waiting == 0, "the records that had waited")
        await until(lambda: writer.store.is_incomplete("r"), "the marker")
        assert len(ids_in(writer.store.path_for("r"))) == 5
    finally:
        writer.close(5)


async def test_the_directory_is_deleted_under_a_running_server(tmp_path: Path) -> None:
    """After `rm -rf` of the directory calls are durable in a new one, and what the old one held is marked as missing."""
    writer = RecordWriter(tmp_path / "captures", durability_timeout_s=BOUND_S * 2)
    try:
        assert await write(writer, "r") is not None
        waiting = writer.begin("s", "b" * 32)
        shutil.rmtree(tmp_path / "captures")
        assert await write(writer, "r") is not None
        await until(lambda: writer.store.is_incomplete("r"), "the marker")
        await until(lambda: len(writer.store.pending("s")) == 1, "the claim in its new file")
        writer.release(waiting)
        assert await write(writer, "s") is not None
        ledger = read_ledger(writer.store)
        assert not ledger.whole
        assert ledger.begun_unaccounted == 1
        assert not account(writer.store, "s").incomplete_marker
    finally:
        writer.close(5)


async def test_a_clock_that_is_set_back(tmp_path: Path) -> None:
    """Records whose clock went backwards are kept as they are and counted; they are no loss."""
    writer = RecordWriter(tmp_path / "captures")
    try:
        for lasted_s in (1.0, -3600.0):
            facts = finished_call("r", lasted_s=lasted_s)
            claim = writer.begin("r", facts.model_call_id)
            assert await writer.write(facts, claim) is not None
        ledger = read_ledger(writer.store)
        assert ledger.rollouts[0].clock_anomalies == 1
        assert ledger.whole
    finally:
        writer.close(5)


def test_a_file_size_limit(tmp_path: Path) -> None:
    """The limit of RLIMIT_FSIZE, which any user meets, is survived like a full disk: whole lines, a marker, no failed call."""
    script = """
import asyncio, sys
from pathlib import Path
from otel_gym.capture.writer import RecordWriter
from tests.capture.calls import finished_call
async def main():
    writer = RecordWriter(Path(sys.argv[1]))
    outcome = []
    for _ in range(10):
        facts = finished_call("r", prompt="y" * 100_000)
        outcome.append(await writer.write(facts, writer.begin("r", facts.model_call_id)))
    assert outcome.count(None) >= 5 and outcome[0] is not None, outcome
    writer.close(0.2)
asyncio.run(main())
"""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "captures")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    store = CaptureStore(tmp_path / "captures")
    after = account(store, "r")
    assert (after.torn, after.incomplete_marker) == (0, True)
    assert after.recorded == len(store.read("r")) >= 1
    assert after.recorded + after.lost == 10
