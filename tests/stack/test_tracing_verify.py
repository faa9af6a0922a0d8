"""Files and a real Jaeger agree: after a long run, after exporting twice, after outages and kills, and with a Collector in between."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym.capture.store import CaptureStore
from otel_gym.cli.main import run as run_command
from otel_gym.correlation.run import Run, open_run
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.pipeline import Pipeline, PipelineLimits
from otel_gym.tracing.rollout import RolloutRecord, write_rollout_record
from tests.tracing.records import BASE_TIME, REQUESTS, append, gym_record
from tools.backends.processes import Jaeger

pytestmark = pytest.mark.stack
RESOURCE = {"service.name": "otel-gym-verify", "host.name": "test", "service.version": "1"}
PROGRAM = [sys.executable, "-c", "from otel_gym.cli.main import main; main()"]
INBOUND = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "tracestate": "k=v"}


def record(number: int) -> dict[str, Any]:
    """A record of one of many kinds: all dialects, streams, failures, links, pins, resends, unusual text."""
    dialect = list(REQUESTS)[number % 4]
    changes: dict[str, Any] = {}
    if number % 5 == 0:
        changes["stream"] = {"chunks": number, "terminal": "complete"}
        changes["engine"] = {"provider": "vllm", "address": "10.0.0.1", "port": 443}
    if number % 7 == 0:
        changes["error_category"] = "rate_limit"
        changes["status_code"] = 429
        changes["response"] = {"error": {"message": "zu viel ✗ \x01", "code": "slow_down"}}
    if number % 11 == 0:
        changes["trace"] = {"inbound": INBOUND, "mode": "link"}
    if number % 13 == 0:
        changes["sampling"] = {
            "requested": {"temperature": 0.1},
            "pinned": {"temperature": 1.5},
            "effective": {"temperature": 1.5},
            "overridden": ["temperature"],
        }
        changes["resend"] = {"count": 1, "of": "x", "reason": "header"}
        changes["client_session_id"] = "sitzung-ß"
    return gym_record(number, dialect, **changes)


def new_captures(directory: Path) -> tuple[Path, Run]:
    directory.mkdir()
    return directory, open_run(directory, resource=RESOURCE)


def rollouts_done(directory: Path, count: int) -> None:
    """Rollout records for half of the rollouts; the others get synthesized roots, or none."""
    for rollout in range(0, count, 2):
        write_rollout_record(
            directory,
            RolloutRecord(
                rollout_id=f"{rollout}-0",
                started_at=BASE_TIME,
                completed_at=BASE_TIME + 10_000,
                agent="agent",
                reward=0.1 * rollout,
                error="failed" if rollout % 4 else None,
            ),
        )


def verified(directory: Path, jaeger: Any, *more: str) -> tuple[int, str]:
    """Exit code and output of `otel-gym verify`."""
    done = subprocess.run(
        [*PROGRAM, "verify", str(directory), "--jaeger", jaeger.query_url, *more],
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def found(directory: Path, jaeger: Any, *more: str) -> tuple[int, ...]:
    """Exit code of `otel-gym verify --json`, and what it counts: spans, rollouts, missing, extra, different, of cleared attempts."""
    code, output = verified(directory, jaeger, *more, "--json")
    counts = orjson.loads(output)
    names = ("spans", "rollouts", "missing", "extra", "different", "cleared")
    return (code, *(counts[name] for name in names))


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)


def test_two_thousand_calls_live_then_again_from_the_files(jaeger: Any, tmp_path: Path) -> None:
    """After a live run of 2,000 calls nothing is missing, extra or different, over both APIs; nor after exporting all of it twice."""
    directory, run = new_captures(tmp_path / "captures")
    endpoint = OtlpEndpoint(f"{jaeger.otlp_http}/v1/traces")
    pipeline = Pipeline(directory, run, SpanOptions(), endpoint).start()
    for number in range(2000):
        pipeline.offer(append(directory, f"{number % 50}-0", record(number)))
    rollouts_done(directory, 50)
    assert pipeline.close(60)
    assert verified(directory, jaeger)[0] == 0
    assert found(directory, jaeger, "--api", "v1") == (0, 2025, 50, 0, 0, 0, 0)
    for _ in range(2):
        assert run_command(["export", str(directory), "--endpoint", jaeger.otlp_http]) == 0
    assert found(directory, jaeger) == (0, 2050, 50, 0, 0, 0, 0)


def test_verify_finds_what_is_missing_extra_and_different(jaeger: Any, tmp_path: Path) -> None:
    """A record that was not exported, one that was cleared and one that was changed are each found, with exit code 1."""
    directory, _ = new_captures(tmp_path / "captures")
    for number in range(6):
        append(directory, "1-0", record(number))
    write_rollout_record(
        directory,
        RolloutRecord(rollout_id="1-0", started_at=BASE_TIME, completed_at=BASE_TIME + 99),
    )
    assert run_command(["export", str(directory), "--endpoint", jaeger.otlp_http]) == 0
    assert verified(directory, jaeger)[0] == 0
    lines = (directory / "1-0.capture.jsonl").read_bytes().splitlines(keepends=True)
    changed = orjson.loads(lines[4]) | {"status_code": 418}
    (directory / "1-0.capture.jsonl").write_bytes(
        b"".join(lines[:4]) + orjson.dumps(changed) + b"\n"
    )
    append(directory, "1-0", record(77))
    code, output = verified(directory, jaeger, "--json")
    told = orjson.loads(output)
    assert code == 1
    assert (told["missing"], told["extra"], told["different"]) == (1, 1, 1)
    (different,) = [each for each in told["findings"] if each["kind"] == "different"]
    assert "http.response.status_code: 418 in the files, 200 in the backend" in different["details"]


def test_a_backend_that_was_dead_for_the_whole_run(
    backend_program: Callable[[str], Path], tmp_path: Path
) -> None:
    """Jaeger comes up only after the run: everything arrives, and until then the queue and the heap stay within their bounds."""
    backend_program("jaeger")
    backend = Jaeger(tmp_path / "jaeger")
    directory, run = new_captures(tmp_path / "captures")
    limits = PipelineLimits(queue_max_spans=200, queue_max_bytes=300_000, interval_s=0.1)
    pipeline = Pipeline(
        directory, run, SpanOptions(), OtlpEndpoint(f"{backend.otlp_http}/v1/traces"), limits=limits
    ).start()
    for number in range(400):
        pipeline.offer(append(directory, f"{number % 20}-0", record(number)))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(400, 3000):
        pipeline.offer(append(directory, f"{number % 20}-0", record(number)))
        assert pipeline.queue_length <= 200
        assert pipeline.queue_bytes <= 300_000
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 3_000_000, "2,600 further records of 1 KB must not pile up in memory"
    rollouts_done(directory, 20)
    assert not pipeline.flush(0.2)
    backend.start()
    try:
        assert pipeline.close(90)
        assert found(directory, backend) == (0, 3010, 20, 0, 0, 0, 0)
    finally:
        backend.stop()


SERVER = """
import sys
from pathlib import Path
from otel_gym.correlation.run import open_run
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.pipeline import Pipeline, PipelineLimits
from tests.stack.test_tracing_verify import record
from tests.tracing.records import append
directory, url, start = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
limits = PipelineLimits(batch_max_spans=20, interval_s=0.01)
pipeline = Pipeline(directory, open_run(directory), SpanOptions(), OtlpEndpoint(url), limits=limits).start()
for number in range(start, start + 1000):
    pipeline.offer(append(directory, f"{number % 20}-0", record(number)))
    print(pipeline.exported, flush=True)
print("closed", pipeline.close(60), flush=True)
"""


def test_a_server_killed_in_the_middle_of_its_export(jaeger: Any, tmp_path: Path) -> None:
    """kill -9 while spans are on their way; the next server sends what is left beside its own, and nothing differs."""
    directory, _ = new_captures(tmp_path / "captures")
    url = f"{jaeger.otlp_http}/v1/traces"

    def server(start: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", SERVER, str(directory), url, str(start)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    with server(0) as first:
        assert first.stdout is not None
        for line in first.stdout:
            if line.strip().isdigit() and int(line) >= 100:
                break
        first.kill()
    written = sum(len(path.read_bytes().splitlines()) for path in directory.glob("*.capture.jsonl"))
    assert written > 100
    assert verified(directory, jaeger)[0] in (0, 1)
    with server(5000) as second:
        assert second.stdout is not None
        last = [line.strip() for line in second.stdout][-1]
    assert last == "closed True"
    assert found(directory, jaeger) == (0, written + 1000, 20, 0, 0, 0, 0)


def test_a_collector_in_between_changes_nothing(
    jaeger: Any, collector: Any, tmp_path: Path
) -> None:
    """Live through the Collector over HTTP, and again from the files over gRPC: the backend has the same spans."""
    directory, run = new_captures(tmp_path / "captures")
    pipeline = Pipeline(
        directory, run, SpanOptions(), OtlpEndpoint(f"{collector.otlp_http}/v1/traces")
    ).start()
    for number in range(500):
        pipeline.offer(append(directory, f"{number % 10}-0", record(number)))
    rollouts_done(directory, 10)
    assert pipeline.close(60)
    until(lambda: verified(directory, jaeger)[0] == 0)
    subprocess.run(
        [*PROGRAM, "export", str(directory), "--endpoint", collector.otlp_grpc],
        check=True,
        env={**os.environ, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        stdout=subprocess.DEVNULL,
    )
    until(lambda: found(directory, jaeger) == (0, 510, 10, 0, 0, 0, 0))


def test_content_and_the_byte_budget_reach_jaeger(
    jaeger: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With content asked for, a 10 MiB prompt becomes a span that Jaeger takes, and the files agree with it."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_AND_EVENT")
    directory, _ = new_captures(tmp_path / "captures")
    big = {
        **REQUESTS["chat"],
        "messages": [{"role": "user", "content": "x" * (10 << 20)}, *REQUESTS["chat"]["messages"]],
    }
    append(directory, "1-0", gym_record(1, request=big))
    append(directory, "1-0", gym_record(2, "messages"))
    assert run_command(["export", str(directory), "--endpoint", jaeger.otlp_http]) == 0
    code, output = verified(directory, jaeger)
    assert code == 0, output


def test_spans_of_a_cleared_attempt_are_no_fault(jaeger: Any, tmp_path: Path) -> None:
    """What was exported before its attempt was cleared is told as that, root included, and the exit code is 0; a span that no clear explains is still extra."""
    directory, _ = new_captures(tmp_path / "captures")
    store = CaptureStore(directory)
    now = time.time()

    def attempt(first: int, calls: int, started_at: float) -> None:
        for number in range(first, first + calls):
            moment = {"started_at": started_at + number / 100, "completed_at": started_at + 5}
            store.record("1-0", record(number) | moment)
        write_rollout_record(
            directory,
            RolloutRecord(
                rollout_id="1-0", started_at=started_at, completed_at=started_at + 6, agent="agent"
            ),
        )
        assert run_command(["export", str(directory), "--endpoint", jaeger.otlp_http]) == 0

    attempt(1, 4, now - 60)
    store.clear("1-0")
    (directory / "1-0.rollout.json").unlink()
    attempt(11, 3, time.time() + 1)
    for api in ("v1", "v3"):
        assert found(directory, jaeger, "--api", api) == (0, 4, 1, 0, 0, 0, 5)
    assert "5 of cleared attempts" in verified(directory, jaeger)[1]
    path = store.path_for("1-0")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    assert found(directory, jaeger) == (1, 3, 1, 0, 1, 0, 5)
    store.close()
