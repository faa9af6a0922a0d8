"""Five hundred rollouts of four calls with crashing agents, a failing engine, and a collector that is killed twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym.capture.store import CaptureStore, read_model_call_records
from otel_gym.cli.main import run as command_line
from otel_gym.rollouts import ATTACHMENT_KEY
from otel_gym.rollouts.attach import PAYLOADS
from otel_gym.tracing.rollout import read_rollout_record
from tests.rollouts.chaos_parts import CALLS
from tests.rollouts.conftest import read_rows, write_rows
from tools.backends.processes import Jaeger

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
TASKS, REPEATS = 250, 2
MAIN = "from otel_gym.cli.main import main; main()"


@dataclass(frozen=True)
class Outcome:
    """What the whole run left behind."""

    directory: Path
    rows: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    codes: list[int]
    """Exit codes of the collector, one a run."""


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that ends with the context."""
    started = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        yield started
    finally:
        started.terminate()
        started.wait(30)
        assert started.stdout is not None
        started.stdout.close()


def first_line(started: subprocess.Popen[str]) -> str:
    """The first line that a process prints."""
    assert started.stdout is not None
    return started.stdout.readline().strip()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """Play everything: killed at once, stopped by two interrupts, then resumed until nothing is missing."""
    folder = tmp_path_factory.mktemp("chaos")
    directory = folder / "captures"
    with ExitStack() as stack:
        engine = first_line(
            stack.enter_context(process("-m", "tests.rollouts.chaos_parts", "engine"))
        )
        serve = ["-c", MAIN, "serve", "--engine", engine, "--capture-dir", str(directory)]
        served = first_line(stack.enter_context(process(*serve, "--port", "0", "--name", "policy")))
        port = int(served.split()[1].rpartition(":")[2])
        config = folder / "config.yaml"
        config.write_text(
            f"observability_enabled: true\nmodel_call_capture_dir: {directory}\n"
            f"policy: {{responses_api_models: {{vllm_model: {{port: {port}}}}}}}\n"
        )
        agent = first_line(
            stack.enter_context(process("-m", "tests.rollouts.chaos_parts", "agent", str(config)))
        )
        tasks = write_rows(folder / "tasks.jsonl", [{"q": number} for number in range(TASKS)])
        output = folder / "rollouts.jsonl"
        command = ["collect", "--agent", agent, "--input", str(tasks), "--output", str(output)]
        command += ["--config", str(config), "--num-repeats", str(REPEATS)]
        command += ["--concurrency", "64", "--max-attempts", "20"]
        codes = [
            _killed(command, output, 120, [signal.SIGKILL]),
            _killed([*command, "--resume"], output, 260, [signal.SIGINT, signal.SIGINT]),
        ]
        while codes[-1] != 0 and len(codes) < 20:
            codes.append(_collector([*command, "--resume"]).wait(300))
        yield Outcome(
            directory,
            read_rows(output),
            read_rows(folder / "rollouts_failures.jsonl"),
            codes,
        )


def _collector(command: list[str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *command], stdout=quiet, stderr=quiet, cwd=ROOT
    )


def _killed(command: list[str], output: Path, rows: int, signals: list[signal.Signals]) -> int:
    """Run the collector, send it `signals` once `rows` results are there, and give its exit code."""
    collector = _collector(command)
    while not output.exists() or output.read_bytes().count(b"\n") < rows:
        assert collector.poll() is None, "the collection ended before it could be killed"
        time.sleep(0.02)
    for number in signals:
        os.kill(collector.pid, number)
        time.sleep(0.05)
    return collector.wait(60)


def test_the_collector_was_really_killed(outcome: Outcome) -> None:
    """One run ended by SIGKILL, one by two interrupts, the last one with everything there."""
    assert outcome.codes[:2] == [-signal.SIGKILL, 130]
    assert outcome.codes[-1] == 0


def test_every_task_has_its_rollouts(outcome: Outcome) -> None:
    """The output has each repeat of each task exactly once, and attempts have ids of their own."""
    found = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in outcome.rows)
    assert found == Counter((task, repeat) for task in range(TASKS) for repeat in range(REPEATS))
    ids = [row[ATTACHMENT_KEY]["rollout_id"] for row in outcome.rows]
    ids += [row["rollout_id"] for row in outcome.failures]
    assert len(set(ids)) == len(ids)
    for row in outcome.rows:
        base = f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
        attempt = row.get("_ng_attempt_index", 0)
        assert row[ATTACHMENT_KEY]["rollout_id"] == (f"{base}-a{attempt}" if attempt else base)
    assert any(row.get("_ng_attempt_index") for row in outcome.rows)
    kinds = Counter(row["error"]["code"] for row in outcome.failures)
    assert kinds["agent_status"] > 20 and kinds["agent_connection_lost"] > 3
    assert set(kinds) == {"agent_status", "agent_connection_lost"}


def test_nothing_is_mixed(outcome: Outcome) -> None:
    """Every record stands in the file of the rollout that its own request names, and a finished rollout has each of its calls once."""
    store = CaptureStore(outcome.directory)
    done = {row[ATTACHMENT_KEY]["rollout_id"] for row in outcome.rows}
    assert all(row["mixed"] == 0 for row in outcome.rows)
    for rollout_id in store.rollouts():
        texts = [raw["request"]["messages"][0]["content"] for raw in store.read(rollout_id)]
        assert {text.partition("/")[0] for text in texts} == {rollout_id}
        if rollout_id in done:
            assert sorted(texts) == [f"{rollout_id}/{number}" for number in range(CALLS)]


def test_each_attachment_equals_its_file(outcome: Outcome) -> None:
    """Results and failures alike hold what the file of their rollout holds; the only gap there may be tells of a killed attempt's late records."""
    store = CaptureStore(outcome.directory)
    for row in (*outcome.rows, *outcome.failures):
        attachment = row[ATTACHMENT_KEY]
        records = read_model_call_records(store, attachment["rollout_id"])
        expected = [one.model_dump(mode="json", exclude=set(PAYLOADS)) for one in records]
        assert attachment["calls"] == expected
        gaps = {one["code"] for one in attachment.get("gaps", [])}
        assert gaps <= {"model_call_capture_stale"}
        record = read_rollout_record(outcome.directory, attachment["rollout_id"])
        assert record is not None and record.totals.model_calls == len(records)
        assert (record.error is not None) == ("error" in row)


def test_doctor_finds_nothing_missing(outcome: Outcome, capsys: pytest.CaptureFixture[str]) -> None:
    """The ledger accounts for every call that was started."""
    code = command_line(["doctor", str(outcome.directory), "--json"])
    ledger = orjson.loads(capsys.readouterr().out)
    assert code == 0, ledger.get("totals")


def test_verify_finds_nothing_different(
    outcome: Outcome, own_jaeger: Jaeger, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exported to a real Jaeger, every record and every rollout is one span there, and nothing else is."""
    export = ["export", str(outcome.directory), "--endpoint", own_jaeger.otlp_http]
    assert command_line(export) == 0
    code = command_line(["verify", str(outcome.directory), "--jaeger", own_jaeger.query_url])
    assert code == 0, capsys.readouterr().out
