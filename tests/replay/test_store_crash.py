"""A writer killed at any moment: what it was told is durable is there and whole."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from otel_gym.replay import HistoryStore
from tests.replay.test_store import made

WRITER = """
import sys
from pathlib import Path
from otel_gym.replay import HistoryStore
from tests.replay.test_store import made

with HistoryStore(sys.argv[1]) as store:
    history = store.load("r") if store.branches("r") else []
    while True:
        history.append(made(len(history)))
        store.checkpoint("r", history)
        sys.stdout.write(f"{len(history)}\\n")
        sys.stdout.flush()
"""
ROOT = Path(__file__).resolve().parents[2]


def test_kill_loses_no_acknowledged_turn(tmp_path: Path) -> None:
    """Killed eight times at random moments, the store verifies, holds every acknowledged turn, and goes on."""
    path = tmp_path / "h.db"
    moments = random.Random(3)
    acknowledged = 0
    for _ in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(moments.uniform(0, 0.15))
        writer.send_signal(signal.SIGKILL)
        lines = [first, *writer.stdout.read().split("\n")]
        writer.wait()
        writer.stdout.close()
        told = [int(line) for line in lines if line.strip()]
        assert told[0] > acknowledged
        acknowledged = told[-1]
        with HistoryStore(path) as store:
            store.verify_file()
            history = store.load("r")
        assert len(history) >= acknowledged
        assert history == [made(number) for number in range(len(history))]
        acknowledged = len(history)
