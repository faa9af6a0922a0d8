"""A server that is asked to end writes everything before it does."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.store import CaptureStore
from tests.reliability.nursery import Nursery, load


async def test_sigterm_drains(tmp_path: Path) -> None:
    """After SIGTERM under load no call is pending, none is lost, and every producer has closed."""
    seen: list[tuple[str, str]] = []
    async with Nursery(tmp_path / "captures") as nursery:
        for life in range(5):
            pid, port = await nursery.server()
            chance = random.Random(life)
            clients = [
                asyncio.create_task(load(port, 3, seen, random.Random(chance.random())))
                for _ in range(8)
            ]
            await asyncio.sleep(0.5 + chance.random() * 0.3)
            os.kill(pid, signal.SIGTERM)
            await asyncio.gather(*clients)
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.01)
    assert seen
    store = CaptureStore(tmp_path / "captures")
    found = {r["request"]["user"] for one in store.rollouts() for r in store.read(one)}
    assert {marker for _, marker in seen} <= found
    ledger = read_ledger(store)
    assert ledger.whole
    assert (ledger.producers_live, ledger.producers_dead) == (0, 0)
    assert ledger.totals()["recorded"] == len(found)
