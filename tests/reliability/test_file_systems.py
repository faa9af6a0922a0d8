"""The store on each file system that can be mounted here: appends of several processes, a torn tail, clear, pack, a full disk."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.pack import pack_rollout
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.writer import RecordWriter
from tests.capture.calls import finished_call
from tests.reliability.mounts import Mount

ROOT = Path(__file__).resolve().parents[2]
PROCESSES, CALLS, ROLLOUTS = 4, 50, 3
KINDS = {"xfs": 320, "btrfs": 128, "ext2": 32, "ext3": 32}
"""Smallest images of each kind, in MiB."""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    point = Mount(tmp_path / "mount")
    yield point
    point.close()


def _write_from_processes(directory: Path) -> None:
    script = str(Path(__file__).with_name("writers.py"))
    subprocess.run(
        [sys.executable, script, str(directory), *map(str, (PROCESSES, CALLS, ROLLOUTS))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=120,
    )


async def _write(writer: RecordWriter, prompt: str) -> bool:
    facts = finished_call("full", prompt=prompt)
    return await writer.write(facts, writer.begin("full", facts.model_call_id)) is not None


async def _fill_and_free(directory: Path, ballast: Path) -> None:
    """Calls on a full disk are served; their records follow when there is room."""
    writer = RecordWriter(directory, durability_timeout_s=20)
    try:
        assert await _write(writer, "before")
        with pytest.raises(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        with pytest.raises(OSError), ballast.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(512))
        assert not all([await _write(writer, "x" * 100_000) for _ in range(5)])
        ballast.unlink()
        deadline = time.monotonic() + 30
        while writer.waiting:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert await _write(writer, "after")
    finally:
        assert writer.close(20)


@pytest.mark.parametrize("kind", [*KINDS, "tmpfs", "overlay"])
def test_the_store_on_this_file_system(kind: str, mount: Mount, tmp_path: Path) -> None:
    """Every record of every process is there, whole and once; a torn tail, a clear, a pack and a full disk are what they are elsewhere."""
    if kind == "tmpfs":
        mount.tmpfs("size=32m")
    elif kind == "overlay":
        mount.overlay(tmp_path)
    else:
        mount.image(kind, tmp_path / "image", KINDS[kind])
    directory = mount.path / "captures"
    _write_from_processes(directory)
    store = CaptureStore(directory)
    names = [r["model_call_id"] for one in store.rollouts() for r in store.read(one)]
    assert len(names) == len(set(names)) == PROCESSES * CALLS
    assert read_ledger(store).whole

    with store.path_for("r0").open("ab") as file:
        file.write(b'{"torn')
    store.record("r0", {"model_call_id": "after the torn tail"})
    lines = list(store.iter_lines("r0"))
    assert [line.number for line in lines if line.record is None] == [len(lines) - 2]
    assert pack_rollout(store, "r0", idle_s=0).state == "packed"
    assert list(store.iter_lines("r0")) == lines
    assert store.find("r0", "after the torn tail") is not None
    store.clear("r1")
    assert store.read("r1") == []
    assert store.record("r1", {"model_call_id": "new attempt"}).offset_bytes == 0

    if kind == "overlay":
        return  # as full as the machine's own disk
    asyncio.run(_fill_and_free(directory, mount.path / "ballast"))
    ledger = read_ledger(store)
    assert ledger.begun_unaccounted == ledger.totals()["lost"] == 0
    assert [r["request"]["messages"][0]["content"][:6] for r in store.read("full")] == [
        *("before", *["xxxxxx"] * 5, "after")
    ]
