"""Unmodified NeMo Gym with `otel-gym export --follow` beside it: lines of its shape become per-rollout traces in a real Jaeger."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym.cli.main import run as command_line
from otel_gym.correlation.run import read_run
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from tests.rollouts.conftest import write_rows
from tests.rollouts.test_attach import raw_call

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

MAIN = "from otel_gym.cli.main import main; main()"


def test_traces_beside_gym(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While somebody appends Gym's lines the follower exports them; rewards of Gym's result rows then become root spans; verify finds nothing amiss."""
    from tools.backends.build import BackendUnavailable, program
    from tools.backends.processes import Jaeger

    try:
        program("jaeger")
    except BackendUnavailable as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
    captures = tmp_path / "model-calls"
    captures.mkdir()
    backend = Jaeger(tmp_path / "jaeger")
    backend.start()
    command = [sys.executable, "-c", MAIN, "export", str(captures), "--follow"]
    command += ["--endpoint", backend.otlp_http]
    follower = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        rows: list[dict[str, Any]] = []
        for task in range(3):
            for call in range(4):
                _append(captures / f"{task}-0.capture.jsonl", time.time() + call / 10)
            rows.append({"_ng_task_index": task, "_ng_rollout_index": 0, "reward": task / 2})
        source = write_rows(tmp_path / "rollouts.jsonl", list(rows))
        attach = ["attach", str(source), "--capture-dir", str(captures), "--rollout-records"]
        assert command_line([*attach, "--output", str(tmp_path / "attached.jsonl")]) == 0
        verify = ["verify", str(captures), "--jaeger", backend.query_url]
        deadline = time.monotonic() + 120
        while command_line(verify) != 0:
            assert time.monotonic() < deadline, capsys.readouterr()
            assert follower.poll() is None, follower.communicate()
            time.sleep(0.5)
        found = read_run(captures)
        assert found is not None
        for task in range(3):
            _is_one_trace(backend.query_url, found.run_id, f"{task}-0", calls=4)
    finally:
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=30)
        backend.stop()


def _append(path: Path, start: float) -> None:
    """One line as Gym writes it, without any key of ours."""
    with path.open("ab") as file:
        file.write(orjson.dumps(raw_call(start, model_call_id=uuid.uuid4().hex)) + b"\n")


def _is_one_trace(jaeger: str, run_id: str, rollout_id: str, calls: int) -> None:
    import httpx

    url = f"{jaeger}/api/traces/{trace_id(run_id, rollout_id)}"
    [trace] = httpx.get(url, trust_env=False).json()["data"]
    parents = [{reference["spanID"] for reference in span["references"]} for span in trace["spans"]]
    assert parents.count(set()) == 1
    assert parents.count({root_span_id(run_id, rollout_id)}) == calls
