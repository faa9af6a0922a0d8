"""The main job, run as a person runs it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.record import build_model_call_record
from otel_gym.capture.store import CaptureStore


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`otel-gym demo` in a process of its own."""
    command = [
        sys.executable,
        "-c",
        "from otel_gym.cli.main import main; main()",
        "demo",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


@pytest.mark.slow
def test_the_demo_records_every_call_of_a_real_model(tmp_path: Path) -> None:
    """Three dialects, streamed and not, against the embedded model: as many records as calls, no errors, real cached tokens."""
    directory = tmp_path / "captures"
    done = run_demo("--rollouts", "6", "--turns", "2", "--capture-dir", str(directory), "--json")
    assert done.returncode == 0, done.stderr
    summary = orjson.loads(done.stdout)
    assert (
        summary["rollouts"] == 6
        and summary["calls"] == summary["records"] == 12
        and summary["errors"] == 0
    )
    assert summary["capture_dir"] == str(directory) and len(set(summary["trace_ids"].values())) == 6
    records = [
        build_model_call_record(orjson.loads(line), index)
        for file in sorted(directory.glob("*.capture.jsonl"))
        for index, line in enumerate(file.read_bytes().splitlines())
    ]
    kinds = {(record.dialect, record.stream_terminal) for record in records}
    assert kinds == {
        (dialect, end)
        for dialect in ("responses", "chat", "messages")
        for end in (None, "complete")
    }
    assert all(
        record.tokens_in and record.tokens_out and record.model == "smollm2-135m"
        for record in records
    )
    assert all(record.cached_tokens for record in records if record.call_index == 1), (
        "the second turn hits the prompt cache"
    )
    assert len(list(directory.glob("*.rollout.json"))) == 6


@pytest.mark.slow
def test_the_demo_shows_a_person_what_happened(tmp_path: Path) -> None:
    """Without --json: where the files are, the table, a waterfall, and the next command, which works."""
    directory = tmp_path / "captures"
    done = run_demo("--rollouts", "1", "--turns", "1", "--capture-dir", str(directory))
    assert done.returncode == 0, done.stderr
    assert (
        str(directory) in done.stdout and "█" in done.stdout and "loading the model" in done.stderr
    )
    assert f"otel-gym show {directory} 0-0" in done.stdout
    again = run_demo("--capture-dir", str(directory))
    assert again.returncode == 2 and "already holds captures" in again.stderr


@pytest.mark.slow
def test_an_interrupted_demo_ends_quietly_with_its_evidence(tmp_path: Path) -> None:
    """Ctrl-C in the middle: no traceback, exit code 130, where the files are, and every call that was begun has its record."""
    directory = tmp_path / "captures"
    # A test run that was started in the background ignores SIGINT, and its children would, too.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program += "from otel_gym.cli.main import main; main()"
    demo = [sys.executable, "-c", program, "demo", "--rollouts", "3", "--turns", "20"]
    demo += ["--capture-dir", str(directory)]
    with subprocess.Popen(
        demo, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 120
        while not list(directory.glob("*.capture.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert out == "" and "Traceback" not in err
    assert str(directory) in err and err.endswith("otel-gym: interrupted\n")
    ledger = read_ledger(CaptureStore(directory))
    assert ledger.whole and ledger.totals()["recorded"] >= 1
