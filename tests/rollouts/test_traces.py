"""Rollouts in a real Jaeger: exported live by the model server, and beside an unmodified NeMo Gym by `otel-gym export --follow`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from otel_gym.cli.main import run as command_line
from otel_gym.correlation.run import read_run
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from tests.rollouts.agents import CallingAgent
from tests.rollouts.conftest import MakeStack, write_rows
from tests.rollouts.test_attach import raw_call
from tools.backends.processes import Jaeger

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

MAIN = "from otel_gym.cli.main import main; main()"


def test_traces_beside_gym(
    own_jaeger: Jaeger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While somebody appends Gym's lines the follower exports them; rewards of Gym's result rows then become root spans; verify finds nothing amiss."""
    captures = tmp_path / "model-calls"
    captures.mkdir()
    command = [sys.executable, "-c", MAIN, "export", str(captures), "--follow"]
    command += ["--endpoint", own_jaeger.otlp_http]
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
        _until_verified(captures, own_jaeger, capsys)
        found = read_run(captures)
        assert found is not None
        for task in range(3):
            _is_one_trace(own_jaeger.query_url, found.run_id, f"{task}-0", calls=4)
    finally:
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=30)


def test_traces_of_a_collection(
    own_jaeger: Jaeger, make_stack: MakeStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the model server exports live, a collector in another place leaves whole traces: roots with reward and agent, failed attempts linked by the next."""
    stack = make_stack(lambda request, number: 500 if number == 1 else None, own_jaeger.otlp_http)
    agent = stack.serve(CallingAgent(stack.settings))
    tasks = write_rows(tmp_path / "tasks.jsonl", [{}, {}])
    command = ["collect", "--agent", agent, "--input", str(tasks), "--concurrency", "1"]
    command += ["--output", str(tmp_path / "out.jsonl"), "--capture-dir", str(stack.directory)]
    assert command_line(command) == 1
    assert command_line([*command, "--resume"]) == 0
    _until_verified(stack.directory, own_jaeger, capsys)
    found = read_run(stack.directory)
    assert found is not None
    for rollout_id, calls, reward in (("0-0", 1, None), ("0-0-a1", 2, 0.5), ("1-0", 2, 0.5)):
        root = _is_one_trace(own_jaeger.query_url, found.run_id, rollout_id, calls)
        tags = {tag["key"]: tag["value"] for tag in root["tags"]}
        assert root["operationName"] == "invoke_agent caller"
        assert tags.get("otel_gym.reward") == reward
        links = [one["traceID"] for one in root["references"]]
        before = [trace_id(found.run_id, "0-0")] if rollout_id == "0-0-a1" else []
        assert links == before


def _until_verified(directory: Path, jaeger: Jaeger, capsys: pytest.CaptureFixture[str]) -> None:
    """Wait until verify finds every record and nothing else."""
    deadline = time.monotonic() + 90
    while command_line(["verify", str(directory), "--jaeger", jaeger.query_url]) != 0:
        assert time.monotonic() < deadline, capsys.readouterr()
        time.sleep(0.5)


def _append(path: Path, start: float) -> None:
    """One line as Gym writes it, without any key of ours."""
    with path.open("ab") as file:
        file.write(orjson.dumps(raw_call(start, model_call_id=uuid.uuid4().hex)) + b"\n")


def _is_one_trace(jaeger: str, run_id: str, rollout_id: str, calls: int) -> dict[str, Any]:
    """The root of the rollout's trace, all other spans of which are its children."""
    url = f"{jaeger}/api/traces/{trace_id(run_id, rollout_id)}"
    [trace] = httpx.get(url, trust_env=False).json()["data"]
    root_id = root_span_id(run_id, rollout_id)
    [root] = [span for span in trace["spans"] if span["spanID"] == root_id]
    children = [span for span in trace["spans"] if span is not root]
    assert len(children) == calls
    for span in children:
        assert [one["spanID"] for one in span["references"]] == [root_id]
    return dict(root)
