"""`otel-gym collect` and `otel-gym attach` as a person runs them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from otel_gym.cli.main import run
from otel_gym.rollouts import ATTACHMENT_KEY
from otel_gym.tracing.rollout import read_rollout_record
from tests.rollouts.agents import CallingAgent
from tests.rollouts.conftest import MakeStack, read_rows, write_rows


def test_collect(make_stack: MakeStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command collects, shows progress and bad rows on stderr, prints only its summary on stdout, and its exit code says whether all is there."""
    stack = make_stack()
    agent = stack.serve(CallingAgent(stack.settings))
    tasks = write_rows(tmp_path / "tasks.jsonl", [{}, b"{oops", {}])
    output = tmp_path / "out.jsonl"
    command = ["collect", "--agent", agent, "--input", str(tasks), "--output", str(output)]
    command += ["--num-repeats", "2", "--capture-dir", str(stack.directory), "--json"]
    assert run(command) == 1
    out, err = capsys.readouterr()
    summary = orjson.loads(out)
    assert (summary["planned"], summary["completed"], summary["input_problems"]) == (4, 4, 1)
    assert f"otel-gym: {tasks}: row 1: is not JSON" in err
    assert "4/4 " in err and "0 failed" in err
    assert all(len(row[ATTACHMENT_KEY]["calls"]) == 2 for row in read_rows(output))

    write_rows(tasks, [{}, {}, {}])
    assert run([*command, "--resume"]) == 0
    summary = orjson.loads(capsys.readouterr().out)
    assert (summary["done_before"], summary["completed"], summary["whole"]) == (4, 2, True)
    assert run([part for part in command if part != "--json"] + ["--resume"]) == 0
    assert "6 of 6 done, 0 by this run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--input": "absent.jsonl"}, "absent.jsonl: cannot be read: No such file or directory"),
        ({"--input": "/dev/null"}, "/dev/null: holds no task"),
        ({"--agent": "nonsense"}, "agent 'nonsense': must be a URL such as"),
        ({"--agent": "http://127.0.0.1:1"}, "agent http://127.0.0.1:1: cannot be reached"),
        ({"--num-repeats": "0"}, "Invalid value for '--num-repeats'"),
        ({"--config": "absent.yaml"}, "absent.yaml: cannot be read"),
        ({"--resume": None, "--overwrite": None}, "exclude each other"),
    ],
)
def test_unusable_input(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, str | None],
    said: str,
) -> None:
    """Whatever can't be used at all is one line on stderr and exit code 2."""
    tasks = write_rows(tmp_path / "tasks.jsonl", [{}])
    options: dict[str, str | None] = {
        "--agent": "http://127.0.0.1:1",
        "--input": str(tasks),
        "--output": str(tmp_path / "out.jsonl"),
        **change,
    }
    command = ["collect"]
    for name, value in options.items():
        command += [name] if value is None else [name, value]
    assert run(command) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err and err.count("\n") == 1


def test_many_equal_problems_are_not_all_shown(
    make_stack: MakeStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of many equal failures the first are shown and the rest are in the failures file."""
    stack = make_stack(lambda request, number: 500)
    agent = stack.serve(CallingAgent(stack.settings))
    tasks = write_rows(tmp_path / "tasks.jsonl", [{}] * 30)
    output = tmp_path / "out.jsonl"
    code = run(["collect", "--agent", agent, "--input", str(tasks), "--output", str(output)])
    assert code == 1
    out, err = capsys.readouterr()
    assert err.count(": the agent answered 500: ") == 20
    assert "more of these are not shown" in err
    assert "0 of 30 done" in out and "the same command with --resume" in out
    assert len(read_rows(tmp_path / "out_failures.jsonl")) == 30


GYM_LINE = {
    "model_call_id": "0123456789abcdef0123456789abcdef",
    "dialect": "responses",
    "model_ref": {"type": "responses_api_models", "name": "policy_model"},
    "started_at": 1790000000.25,
    "completed_at": 1790000001.5,
    "latency_ms": 1250.0,
    "latency_ttft_ms": 1249.5,
    "status_code": 200,
    "error_category": None,
    "request": {"input": [{"role": "user", "content": "hi"}]},
    "response": {
        "id": "resp_1",
        "model": "m",
        "status": "completed",
        "output": [],
        "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
    },
}
"""A line as NeMo Gym writes it: none of our keys."""


def test_attach_to_rows_of_gym(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows and captures that NeMo Gym wrote are joined; nothing else of a row changes, and nothing is made in the directory."""
    captures = tmp_path / "model-calls"
    captures.mkdir()
    for rollout_id in ("0-0", "0-1-a1"):
        (captures / f"{rollout_id}.capture.jsonl").write_bytes(orjson.dumps(GYM_LINE) + b"\n")
    before = sorted(path.name for path in captures.iterdir())
    rows = [
        {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {"id": "r"}},
        {"_ng_task_index": 0, "_ng_rollout_index": 1, "_ng_attempt_index": 1, "reward": 0.0},
    ]
    source = write_rows(tmp_path / "rollouts.jsonl", list(rows))
    output = tmp_path / "attached.jsonl"
    command = ["attach", str(source), "--capture-dir", str(captures), "--output", str(output)]
    assert run([*command, "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["attached"] == 2
    attached = read_rows(output)
    for row, original in zip(attached, rows, strict=True):
        attachment = row.pop(ATTACHMENT_KEY)
        assert row == original
        assert attachment["metrics"]["tokens_in"] == 5 and "gaps" not in attachment
    assert sorted(path.name for path in captures.iterdir()) == before
    again = [*command[:-1], str(tmp_path / "again.jsonl"), "--rollout-records", "--json"]
    assert run(again) == 0
    capsys.readouterr()
    record = read_rollout_record(captures, "0-1-a1")
    assert record is not None
    assert (record.reward, record.attempt_index, record.totals.model_calls) == (0.0, 1, 1)
    assert (record.started_at, record.completed_at) == (1790000000.25, 1790000001.5)
    assert run(command) == 2
    assert "attached.jsonl: exists; name another output" in capsys.readouterr().err


def test_attach_tells_of_rows_it_cannot_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged row is left out, one without a rollout copied, one without captures gets its gap; each is told and the exit code is 1."""
    captures = tmp_path / "captures"
    captures.mkdir()
    identity = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    source = write_rows(tmp_path / "rows.jsonl", [b"{", {"reward": 1}, identity])
    output = tmp_path / "attached.jsonl"
    command = ["attach", str(source), "--capture-dir", str(captures), "--output", str(output)]
    assert run(command) == 1
    out, err = capsys.readouterr()
    assert "row 0: is no JSON object; left out" in err and "row 1: names no rollout; copied" in err
    assert "1 attached, 1 of them with gaps, 1 name no rollout, 1 damaged" in out
    assert len(read_rows(output)) == 2


def test_an_interrupt_drains(make_stack: MakeStack, tmp_path: Path) -> None:
    """After one interrupt what is in flight ends and is kept, nothing more is dispatched, and the exit code is 130."""
    stack = make_stack()
    stack.engine.delay_s = 0.2
    asked = CallingAgent(stack.settings)
    agent = stack.serve(asked)
    tasks = write_rows(tmp_path / "tasks.jsonl", [{}] * 200)
    output = tmp_path / "out.jsonl"
    command = [sys.executable, "-c", "from otel_gym.cli.main import main; main()", "collect"]
    command += ["--agent", agent, "--input", str(tasks), "--output", str(output), "--json"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    while not output.exists() or not output.read_bytes():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    summary = orjson.loads(out)
    assert summary["completed"] == len(read_rows(output)) == len(asked.asked)
    assert summary["failed"] == 0 and summary["left"] == 200 - summary["completed"] > 0
    assert "stopping when what is in flight has ended" in err
