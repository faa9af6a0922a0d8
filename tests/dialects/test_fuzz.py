"""A few seconds of coverage-guided fuzzing of every decoder; `python -m tests.dialects.fuzz_streams` runs longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("atheris")

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "target", ["sse", "responses", "chat", "messages", "completions", "encoding", "usage"]
)
def test_a_bounded_fuzz_run_finds_nothing(target: str, tmp_path: Path) -> None:
    """No exception, no changed byte, no superlinear time, in two seconds of inputs."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.dialects.fuzz_streams", target, "2"),
            f"-artifact_prefix={tmp_path}/",
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done" in done.stderr
