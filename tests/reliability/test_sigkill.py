"""A server that is killed at any moment loses no call whose client saw the end."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from pathlib import Path

import pytest

from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.store import CaptureStore
from tests.reliability.nursery import Nursery, load

KILLS = 200
SERVERS_AT_ONCE = 2
CLIENTS = 8
ROLLOUTS = 6


async def _lives(nursery: Nursery, kills: int, seen: list[tuple[str, str]], seed: int) -> None:
    """Servers one after the other, each under load and killed at a random moment."""
    chance = random.Random(seed)
    for _ in range(kills):
        pid, port = await nursery.server()
        clients = [
            asyncio.create_task(load(port, ROLLOUTS, seen, random.Random(chance.random())))
            for _ in range(CLIENTS)
        ]
        answered, patience = len(seen), time.monotonic() + 5
        while chance.random() > 0.1 and len(seen) == answered and time.monotonic() < patience:
            await asyncio.sleep(0.01)
        await asyncio.sleep(chance.random() * 0.2)
        os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*clients)


@pytest.mark.slow
async def test_no_answered_call_is_lost_over_200_kills(tmp_path: Path) -> None:
    """Over 200 SIGKILLs under load: every call whose client saw the end stands in the files once, every line that survives is a record or a torn tail,
    and the claims account for the rest."""
    directory = tmp_path / "captures"
    seen: list[tuple[str, str]] = []
    async with Nursery(directory) as nursery:
        lives = KILLS // SERVERS_AT_ONCE
        await asyncio.gather(
            *(_lives(nursery, lives, seen, seed) for seed in range(SERVERS_AT_ONCE))
        )
    assert len(seen) > KILLS, "the servers were hardly under load"

    store = CaptureStore(directory)
    found: dict[str, list[str]] = {}
    torn = 0
    for rollout_id in store.rollouts():
        for line in store.iter_lines(rollout_id):
            if line.record is None:
                torn += 1
                continue
            assert line.record["rollout_id"] == rollout_id
            found.setdefault(line.record["request"]["user"], []).append(rollout_id)
    missing = [one for one in seen if found.get(one[1]) != [one[0]]]
    assert not missing, f"{len(missing)} of {len(seen)} answered calls"

    ledger = read_ledger(store)
    assert ledger.begun_unaccounted == 0
    assert ledger.totals()["pending_live"] == 0
    assert ledger.totals()["torn"] == torn
    assert ledger.totals()["recorded"] == sum(len(places) for places in found.values())
    assert ledger.totals()["duplicates"] == 0
    assert ledger.producers_live == 0
    # A call that was in flight at a kill is pending of a dead producer, or recorded without its client having seen the end.
    assert ledger.totals()["pending_dead"] > 0
    assert torn <= ledger.totals()["pending_dead"]
