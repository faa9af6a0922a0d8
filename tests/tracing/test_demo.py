"""The demo's spans: exported while it ran, and again from its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gym.cli.main import run as run_command
from tests.demo.test_demo import run_demo
from tests.tracing.receiver import Receiver


@pytest.mark.slow
def test_live_and_later_export_of_the_demo_are_equal(tmp_path: Path, receiver: Receiver) -> None:
    """Encoded bytes of every span of a real run with a real model, roots included, are the same both times."""
    directory = tmp_path / "captures"
    done = run_demo(
        "--rollouts", "3", "--turns", "1", "--capture-dir", str(directory), "--otlp-endpoint", receiver.url, "--json"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    live = receiver.distinct
    assert len(live) == 3 + 3
    receiver.kept.clear()
    assert run_command(["export", str(directory), "--endpoint", receiver.url]) == 0
    assert receiver.distinct == live
    assert all(len(encodings) == 1 for encodings in live.values())
