"""Many processes on one directory: every record is there, whole, once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.store import CaptureStore, read_model_call_records

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 16
CALLS = 1000


@pytest.mark.slow
@pytest.mark.parametrize("rollouts", [1, 200])
def test_sixteen_processes_write_a_thousand_calls_each(tmp_path: Path, rollouts: int) -> None:
    """16 x 1,000 calls on one rollout and on 200: all there, none torn, none twice, `call_index` dense."""
    directory = tmp_path / "captures"
    began = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, str(Path(__file__).with_name("writers.py")), str(directory)),
            *map(str, (PROCESSES, CALLS, rollouts)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    sys.stdout.write(f"{PROCESSES * CALLS / (time.monotonic() - began):.0f} calls/s\n")
    store = CaptureStore(directory)
    assert len(list(store.rollouts())) == rollouts
    ids: set[str] = set()
    for rollout_id in store.rollouts():
        records = read_model_call_records(store, rollout_id)
        assert [record.call_index for record in records] == list(range(len(records)))
        assert {record.rollout_id for record in records} == {rollout_id}
        found = {str(record.model_call_id) for record in records}
        assert len(found) == len(records)
        ids |= found
    assert ids == {f"{p:016x}{i:016x}" for p in range(PROCESSES) for i in range(CALLS)}
    ledger = read_ledger(store)
    assert ledger.whole and ledger.totals()["started"] == PROCESSES * CALLS
    assert store.pending() == []
