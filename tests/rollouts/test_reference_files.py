"""Files of one producer read by the other: ours by nemo-gym 0.7.0, and nemo-gym's by us.

Runs where OTEL_GYM_REFERENCE_PYTHON names the Python of an environment with nemo-gym.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_gym.capture.metrics import aggregate_model_call_records
from otel_gym.capture.record import build_model_call_record
from otel_gym.capture.store import CaptureStore
from otel_gym.rollouts import ATTACHMENT_KEY, attach_model_calls
from tests.capture.asgi import Rig
from tests.rollouts.reference_exchanges import CASES, application
from tests.rollouts.test_reference_helpers import Ask, ask, same_call

__all__ = ["ask"]

SCRIPT = Path(__file__).with_name("reference_captures.py")


async def _drive(rig: Rig) -> None:
    transport = httpx.ASGITransport(rig.wrap(application))
    async with httpx.AsyncClient(transport=transport, base_url="http://ours") as client:
        for path, body in CASES:
            headers = {"x-session-id": "s"}
            await client.post(f"/ng-rollout/7-2{path}", content=body, headers=headers)


def _agree(directory: Path, ask: Ask) -> list[dict[str, Any]]:
    """Both read the file of 7-2 alike; gives the raw lines."""
    store = CaptureStore(directory)
    raws = store.read("7-2")
    assert len(raws) == len(CASES)
    ours = [build_model_call_record(raw, number) for number, raw in enumerate(raws)]
    theirs, invalid = ask("available", str(directory), "7-2")
    assert invalid == 0
    assert ask("strict", str(directory), "7-2") == theirs
    for raw, mine, reference in zip(raws, ours, theirs, strict=True):
        same_call(mine.model_dump(mode="json"), reference, raw["response"])
    metrics = ask("metrics", str(directory), "7-2")
    mine = aggregate_model_call_records(ours)
    assert {key: mine[key] for key in metrics} == pytest.approx(metrics)
    row: dict[str, Any] = {"_ng_task_index": 7, "_ng_rollout_index": 2}
    merged = ask("merge", row, str(directory))[ATTACHMENT_KEY]
    assert attach_model_calls(row, store)
    assert row[ATTACHMENT_KEY].get("gaps") == merged.get("gaps")
    assert len(row[ATTACHMENT_KEY]["calls"]) == len(merged["calls"])
    return raws


def test_gym_reads_what_we_write(tmp_path: Path, ask: Ask) -> None:
    """Every line that our middleware writes, of whole, cut, failed, malformed and binary exchanges, is a record to nemo-gym, with the values that it is to us."""
    rig = Rig(tmp_path)
    asyncio.run(_drive(rig))
    rig.close()
    raws = _agree(tmp_path, ask)
    assert {raw["error_category"] for raw in raws} >= {None, "stream_truncated", "rate_limit"}


def test_we_read_what_gym_writes(tmp_path: Path, ask: Ask) -> None:
    """Every line that nemo-gym's middleware writes of the same exchanges is a record to us, with the values that it is to nemo-gym."""
    python = os.environ["OTEL_GYM_REFERENCE_PYTHON"]
    done = subprocess.run([python, str(SCRIPT), str(tmp_path)], capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr.decode()
    _agree(tmp_path, ask)


def test_one_file_of_both(tmp_path: Path, ask: Ask) -> None:
    """Calls that both middlewares append to one file in turn are all there, and read alike by both."""
    python = os.environ["OTEL_GYM_REFERENCE_PYTHON"]
    rig = Rig(tmp_path)
    asyncio.run(_drive(rig))
    done = subprocess.run([python, str(SCRIPT), str(tmp_path)], capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr.decode()
    asyncio.run(_drive(rig))
    rig.close()
    store = CaptureStore(tmp_path)
    assert len(store.read("7-2")) == 3 * len(CASES)
    records, invalid = ask("available", str(tmp_path), "7-2")
    assert (len(records), invalid) == (3 * len(CASES), 0)
    assert not store.await_quiescence("7-2", 0.0).pending
