"""A server that is killed at any moment loses no call whose client saw the end."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.store import CaptureStore
from tests.reliability.client import call

ROOT = Path(__file__).resolve().parents[2]
KILLS = 200
SERVERS_AT_ONCE = 2
CLIENTS = 8
ROLLOUTS = 6


async def _load(port: int, name: int, seen: list[tuple[str, str]], chance: random.Random) -> None:
    """Call until the server is gone."""
    failures = 0
    while failures < 3:
        rollout_id = f"r{chance.randrange(ROLLOUTS)}"
        marker = await call(port, rollout_id, stream=chance.random() < 0.5)
        if marker is None:
            failures += 1
        else:
            failures = 0
            seen.append((rollout_id, marker))


async def _lives(
    nursery: asyncio.subprocess.Process, kills: int, seen: list[tuple[str, str]], seed: int
) -> None:
    """Servers one after the other, each under load and killed at a random moment."""
    chance = random.Random(seed)
    assert nursery.stdin is not None and nursery.stdout is not None
    for _ in range(kills):
        async with _birth:
            nursery.stdin.write(b"\n")
            await nursery.stdin.drain()
            pid, port = map(int, (await nursery.stdout.readline()).split())
        clients = [
            asyncio.create_task(_load(port, i, seen, random.Random(chance.random())))
            for i in range(CLIENTS)
        ]
        await asyncio.sleep(0.04 + chance.random() * 0.25)
        os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*clients)


_birth = asyncio.Lock()


@pytest.mark.slow
async def test_no_answered_call_is_lost_over_200_kills(tmp_path: Path) -> None:
    """Over 200 SIGKILLs under load: every call whose client saw the end stands in the files once, every line that survives is a record or a torn tail,
    and the claims account for the rest."""
    directory = tmp_path / "captures"
    nursery = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("server.py")),
        str(directory),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    seen: list[tuple[str, str]] = []
    try:
        await asyncio.gather(
            *(
                _lives(nursery, KILLS // SERVERS_AT_ONCE, seen, seed)
                for seed in range(SERVERS_AT_ONCE)
            )
        )
    finally:
        assert nursery.stdin is not None
        nursery.stdin.close()
        await nursery.wait()
    assert len(seen) > 3 * KILLS, "the servers were hardly under load"

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
