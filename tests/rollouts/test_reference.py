"""What NeMo Gym 0.7.0 itself writes and attaches, beside what we attach to the same rows.

Runs where OTEL_GYM_REFERENCE_PYTHON names the Python of an environment with nemo-gym; that package is too large to be part of every run.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import orjson
import pytest

from otel_gym.capture.store import CaptureStore
from otel_gym.rollouts import ATTACHMENT_KEY, attach_model_calls

SCRIPT = Path(__file__).with_name("reference_gym.py")


def test_attachments_agree(tmp_path: Path) -> None:
    """Every key that the reference attaches has the same value in our attachment of the same files, and no other key of a row changes."""
    python = os.environ.get("OTEL_GYM_REFERENCE_PYTHON")
    if not python:
        pytest.skip("OTEL_GYM_REFERENCE_PYTHON names no Python with nemo-gym")
    done = subprocess.run(
        [python, str(SCRIPT), str(tmp_path / "captures")], capture_output=True, timeout=240
    )
    assert done.returncode == 0, done.stderr.decode()
    store = CaptureStore(tmp_path / "captures")
    rows = [orjson.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    assert len(rows) == 4
    for row in rows:
        expected = row.pop(ATTACHMENT_KEY)
        before = dict(row)
        assert attach_model_calls(row, store)
        ours = row.pop(ATTACHMENT_KEY)
        assert row == before
        assert ours["rollout_id"] == expected["rollout_id"]
        assert ours.get("gaps") == expected.get("gaps")
        assert len(ours["calls"]) == len(expected["calls"])
        for call, reference in zip(ours["calls"], expected["calls"], strict=True):
            known = {key: call[key] for key in reference}
            known["tool_calls"] = [
                {key: tool[key] for key in ("call_id", "name", "arguments")}
                for tool in known["tool_calls"]
            ]
            assert known == reference
        metrics = expected["metrics"]
        # Sums of floats depend on the order of adding, which neither side promises.
        assert {key: ours["metrics"][key] for key in metrics} == pytest.approx(metrics)
