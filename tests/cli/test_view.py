"""`otel-gym view` as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gym.capture.store import CaptureStore


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_well_when_it_is_asked_to(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, the way that it names, and SIGTERM end it with exit code 0 and no further word."""
    CaptureStore(tmp_path).record("7-0", {"model_call_id": "a", "dialect": "chat"})
    code = "from otel_gym.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "view", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert f"{tmp_path} at http://127.0.0.1:" in process.stdout.readline()
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err.count("\n") <= 1 and "interrupted" not in err and "Traceback" not in err
