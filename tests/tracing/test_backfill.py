"""Export from files, and the commands around it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_gym.cli.export import since_seconds
from otel_gym.cli.main import run as run_command
from otel_gym.correlation.run import Run, read_run
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from otel_gym.errors import UsageProblem
from otel_gym.tracing.encode import encode_span
from otel_gym.tracing.jobs import parts_of
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.otlp_json import span_json
from otel_gym.tracing.rollout import RolloutRecord, write_rollout_record
from otel_gym.tracing.spans import RecordPlace, span_from_record
from tests.tracing.receiver import Receiver, Reply
from tests.tracing.records import BASE_TIME, append, call_id, fill, gym_record

Captures = tuple[Path, Run]
Captured = pytest.CaptureFixture[str]
NO_METRICS = {**os.environ, "OTEL_METRICS_EXPORTER": "none"}
PROGRAM = [sys.executable, "-c", "from otel_gym.cli.main import main; main()"]


def attributes(span: Span) -> dict[str, Any]:
    return {pair.key: pair.value for pair in span.attributes}


def test_a_directory_of_nemo_gym_gets_a_run_and_its_spans(
    tmp_path: Path, receiver: Receiver, capsys: Captured
) -> None:
    """Files without run.json and without our keys export to one trace a rollout, under the given run id, which then stays."""
    for number in range(6):
        append(tmp_path, f"{number % 2}-0", gym_record(number))
    arguments = ["export", str(tmp_path), "--endpoint", receiver.url, "--json"]
    assert run_command([*arguments, "--run-id", "nightly"]) == 0
    done = orjson.loads(capsys.readouterr().out)
    assert (done["calls"], done["synthesized"], done["run_id"]) == (6, 2, "nightly")
    run = read_run(tmp_path)
    assert run is not None
    assert run.run_id == "nightly"
    traces = {span.trace_id.hex() for span in receiver.spans}
    assert traces == {trace_id("nightly", "0-0"), trace_id("nightly", "1-0")}
    first = receiver.distinct
    assert run_command(arguments) == 0
    assert receiver.distinct == first, "exporting again sends the same bytes"
    assert run_command([*arguments, "--run-id", "other"]) == 2
    assert "is run nightly" in capsys.readouterr().err


def test_a_root_is_made_where_there_is_none(captures: Captures, receiver: Receiver) -> None:
    """A rollout without a record gets a root that covers its calls, marked so; one with a record gets that."""
    directory, _ = captures
    fill(directory, rollouts=2, calls=3)
    write_rollout_record(
        directory,
        RolloutRecord(
            rollout_id="1-0", started_at=BASE_TIME, completed_at=BASE_TIME + 99, agent="a"
        ),
    )
    assert run_command(["export", str(directory), "--endpoint", receiver.url]) == 0
    spans = {span.span_id.hex(): span for span in receiver.spans}
    made = spans[root_span_id("run-1", "0-0")]
    real = spans[root_span_id("run-1", "1-0")]
    calls = [span for span in receiver.spans if span.parent_span_id == made.span_id]
    assert len(calls) == 3
    assert made.start_time_unix_nano == min(span.start_time_unix_nano for span in calls)
    assert made.end_time_unix_nano == max(span.end_time_unix_nano for span in calls)
    assert attributes(made)["otel_gym.rollout.synthesized"].bool_value
    assert attributes(made)["otel_gym.rollout.model_calls"].int_value == 3
    assert "otel_gym.rollout.synthesized" not in attributes(real)
    assert real.name == "invoke_agent a"


def test_choosing_rollouts_and_times(
    captures: Captures, receiver: Receiver, capsys: Captured
) -> None:
    """--rollout and --since limit what is sent; an id that is not there is an error."""
    directory, _ = captures
    fill(directory, rollouts=4, calls=3)
    base = ["export", str(directory), "--endpoint", receiver.url, "--json"]
    assert run_command([*base, "--rollout", "1-0", "--rollout", "2-0"]) == 0
    assert orjson.loads(capsys.readouterr().out)["calls"] == 6
    last = BASE_TIME + 11 * 2 + 1.5
    assert run_command([*base, "--since", str(last)]) == 0
    assert orjson.loads(capsys.readouterr().out) | {"to": ""} == {
        "run_id": "run-1",
        "to": "",
        "spans": 2,
        "calls": 1,
        "rollouts": 0,
        "synthesized": 1,
        "damaged": 0,
        "unreadable": 0,
        "parked": 0,
    }
    assert run_command([*base, "--rollout", "77-0"]) == 2
    assert "77-0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1790000000.5", 1790000000.5),
        ("2026-09-21T14:13:20", 1790000000.0),
        ("2026-09-21T16:13:20+02:00", 1790000000.0),
        ("2h", 1000.0 - 7200),
        ("1.5m", 910.0),
    ],
)
def test_times_as_people_write_them(text: str, seconds: float) -> None:
    """Unix seconds, ISO dates (UTC where no zone is named) and ages."""
    assert since_seconds(text, now=1000.0) == seconds


def test_a_time_that_is_none_is_refused() -> None:
    """The message says what is understood."""
    with pytest.raises(UsageProblem, match="2h"):
        since_seconds("yesterday")


def test_several_jobs_send_the_same(captures: Captures, receiver: Receiver) -> None:
    """Two processes export what one does, byte for byte."""
    directory, _ = captures
    fill(directory, rollouts=5, calls=6)
    base = ["export", str(directory), "--endpoint", receiver.url]
    assert run_command(base) == 0
    one = receiver.distinct
    receiver.kept.clear()
    assert run_command([*base, "--jobs", "2"]) == 0
    assert receiver.distinct == one
    assert len(receiver.spans) == 35


def test_rollouts_are_dealt_out_in_order_and_once() -> None:
    """Parts hold every rollout once, in order, and about the wanted number of bytes."""
    rollouts = [(f"{number}-0", number % 7) for number in range(50)]
    parts = parts_of(rollouts, 20)
    assert [rollout for part in parts for rollout in part] == [name for name, _ in rollouts]
    assert len(parts) > 3
    assert parts_of([], 20) == []


def test_export_to_a_file(captures: Captures, tmp_path: Path) -> None:
    """The file holds OTLP JSON lines with the same spans."""
    directory, run = captures
    written = fill(directory, rollouts=2, calls=3)
    out = tmp_path / "spans.otlp.jsonl"
    assert run_command(["export", str(directory), "--out", str(out)]) == 0
    spans = {
        span["spanId"]: span
        for line in out.read_bytes().splitlines()
        for part in orjson.loads(line)["resourceSpans"]
        for scope in part["scopeSpans"]
        for span in scope["spans"]
    }
    assert len(spans) == 8
    for each in written:
        place = RecordPlace(each.rollout_id, each.path.name, each.offset_bytes)
        span = span_from_record(each.record, place, run, SpanOptions())
        assert spans[span.span_id] == span_json(span)
    assert list(tmp_path.glob("*.part")) == []


def test_unusable_input_is_one_line_and_code_2(captures: Captures, capsys: Captured) -> None:
    """Wrong directories, no backend and options that exclude each other end with a clear line."""
    directory, _ = captures
    for arguments, words in (
        (["export", str(directory)], "no backend"),
        (["export", str(directory / "no")], "no such directory"),
        (["export", str(directory), "--endpoint", "h:4318"], "such as http://127.0.0.1:4318"),
        (["export", str(directory), "--endpoint", "http://h", "--out", "f"], "choose one"),
        (["export", str(directory), "--endpoint", "http://h"], "no .capture.jsonl"),
        (["export", str(directory), "--follow", "--out", "f"], "--follow"),
        (["find", "a" * 32, str(directory.parent)], "run.json"),
        (["trace-id", str(directory), "../x"], "Invalid rollout id"),
    ):
        assert run_command(arguments) == 2, arguments
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


def test_a_backend_that_stays_away_ends_the_export(
    captures: Captures, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """An export from files gives up after a bound, with code 1 and the reason; running it again is the cure."""
    from otel_gym.tracing import sinks

    monkeypatch.setattr(
        sinks.EndpointSink.__init__,
        "__kwdefaults__",
        {**sinks.EndpointSink.__init__.__kwdefaults__, "give_up_s": 0.1},
    )
    dead = Receiver()
    dead.close()
    fill(captures[0], rollouts=1, calls=1)
    assert run_command(["export", str(captures[0]), "--endpoint", dead.url]) == 1
    assert "stayed away" in capsys.readouterr().err


def test_a_parked_span_makes_the_exit_code_1(
    captures: Captures, receiver: Receiver, capsys: Captured
) -> None:
    """Spans that the backend refuses are told, not silently left out."""
    fill(captures[0], rollouts=1, calls=2)
    receiver.answer = lambda request: Reply(400, b"no")
    assert run_command(["export", str(captures[0]), "--endpoint", receiver.url]) == 1
    assert "refused by the backend" in capsys.readouterr().out


def test_finding_a_record_by_any_id(captures: Captures, capsys: Captured) -> None:
    """A span id, a call id, a root's span id and a trace id lead to file, offset and line."""
    directory, run = captures
    written = fill(directory, rollouts=2, calls=3)
    wanted = written[4]
    for identity in (call_id(4), call_id(4)[:16], call_id(4)[:16].upper()):
        assert run_command(["find", identity, str(directory), "--json"]) == 0
        (found,) = orjson.loads(capsys.readouterr().out)
        assert found["offset_bytes"] == wanted.offset_bytes
        assert found["length_bytes"] == wanted.length_bytes
        assert found["line"] == 1
        assert found["record"] == wanted.record
        assert found["trace_id"] == trace_id(run.run_id, "1-0")
    assert run_command(["find", trace_id(run.run_id, "1-0"), str(directory), "--json"]) == 0
    assert len(orjson.loads(capsys.readouterr().out)) == 4
    assert run_command(["find", root_span_id(run.run_id, "0-0"), str(directory)]) == 0
    assert "rollout 0-0" in capsys.readouterr().out
    assert run_command(["find", "f" * 32, str(directory)]) == 1
    (directory / "0-9.capture.jsonl").symlink_to(directory / "0-0.capture.jsonl")
    assert run_command(["find", root_span_id(run.run_id, "0-0"), str(directory)]) == 0
    capsys.readouterr()
    assert run_command(["find", "f" * 32, str(directory)]) == 2
    assert "0-9.capture.jsonl" in capsys.readouterr().err


def test_finding_a_call_whose_trace_is_the_callers(captures: Captures, capsys: Captured) -> None:
    """A call that joined its caller's trace is found by that trace's id, and one with an odd id by its digest."""
    directory, run = captures
    inbound = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    append(
        directory,
        "1-0",
        gym_record(
            1,
            trace={"trace_id": "a" * 32, "span_id": "c" * 16, "inbound": inbound, "mode": "parent"},
        ),
    )
    odd = append(directory, "1-0", gym_record(2, model_call_id="call-7"))
    for identity in ("a" * 32, "c" * 16):
        assert run_command(["find", identity, str(directory), "--json"]) == 0
        (found,) = orjson.loads(capsys.readouterr().out)
        assert found["offset_bytes"] == 0
    place = RecordPlace("1-0", "1-0.capture.jsonl", odd.offset_bytes)
    span = span_from_record(odd.record, place, run, SpanOptions())
    assert run_command(["find", span.span_id, str(directory), "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)[0]["model_call_id"] == "call-7"


def test_the_trace_of_a_rollout(captures: Captures, capsys: Captured) -> None:
    """trace-id prints the ids and the link, whether anything was exported or not."""
    arguments = ["trace-id", str(captures[0]), "3-1", "--ui", "http://localhost:16686/"]
    assert run_command([*arguments, "--json"]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert found["trace_id"] == trace_id("run-1", "3-1")
    assert found["root_span_id"] == root_span_id("run-1", "3-1")
    assert found["url"] == f"http://localhost:16686/trace/{found['trace_id']}"
    assert run_command(arguments) == 0
    assert found["url"] in capsys.readouterr().out


def test_follow_runs_until_it_is_asked_to_end(captures: Captures, receiver: Receiver) -> None:
    """The sidecar as a process: exports what is there and what comes, and ends well at SIGTERM with a true cursor."""
    directory, _ = captures
    fill(directory, rollouts=2, calls=3)
    command = [*PROGRAM, "export", str(directory), "--follow"]
    sidecar = subprocess.Popen(
        [*command, "--endpoint", receiver.url],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=NO_METRICS,
    )
    try:
        _until(lambda: len(receiver.distinct) == 6)
        append(directory, "5-0", gym_record(77))
        _until(lambda: call_id(77)[:16] in receiver.distinct)
        sidecar.terminate()
        out, _ = sidecar.communicate(timeout=30)
        assert sidecar.returncode == 0
        assert b"exported 7 spans" in out
    finally:
        sidecar.kill()
        sidecar.communicate()


def test_a_killed_sidecar_goes_on_where_it_was(captures: Captures, receiver: Receiver) -> None:
    """After kill -9 in the middle of an export the next one sends the rest; together everything has arrived, unchanged."""
    directory, run = captures
    written = fill(directory, rollouts=10, calls=40)
    gate = threading.Semaphore(3)

    def slow(request: Any) -> Reply:
        gate.acquire(timeout=20)
        return Reply()

    receiver.answer = slow
    command = [*PROGRAM, "export", str(directory), "--follow"]
    config = directory.parent / "gym.yaml"
    config.write_text("otel_gym: {export_batch_max_spans: 50}\n")
    command += ["--endpoint", receiver.url, "--config", str(config)]
    first = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=NO_METRICS
    )
    try:
        _until(lambda: len(receiver.requests) >= 3)
    finally:
        first.kill()
        first.wait()
    receiver.answer = lambda request: Reply()
    for _ in range(50):
        gate.release()
    second = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=NO_METRICS
    )
    try:
        _until(lambda: len(receiver.distinct) == 400)
    finally:
        second.terminate()
        second.wait(timeout=30)
    expected = {
        span.span_id: Span.FromString(encode_span(span)).SerializeToString()
        for each in written
        for span in [
            span_from_record(
                each.record,
                RecordPlace(each.rollout_id, each.path.name, each.offset_bytes),
                run,
                SpanOptions(),
            )
        ]
    }
    assert receiver.distinct == {key: {value} for key, value in expected.items()}


def _until(condition: Any, seconds: float = 30.0) -> None:
    """Waits for a condition; the test fails when it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def test_a_file_that_cannot_be_read_is_told(
    captures: Captures, receiver: Receiver, capsys: Captured
) -> None:
    """The other rollouts are exported; the exit code and the sentence say that one is missing."""
    directory, _ = captures
    fill(directory, rollouts=2, calls=2)
    (directory / "1-5.capture.jsonl").mkdir()
    assert run_command(["export", str(directory), "--endpoint", receiver.url]) == 1
    assert re.search(r"; 1 files? could not be read", capsys.readouterr().out)
    assert len(receiver.distinct) == 4 + 2


def test_a_file_that_cannot_be_written_is_told(captures: Captures, capsys: Captured) -> None:
    """An export to a file that cannot be made ends with the file's name and a reason, in one line."""
    fill(captures[0], rollouts=1, calls=1)
    for out in ("/dev/full/x", str(captures[0] / "no" / "such")):
        assert run_command(["export", str(captures[0]), "--out", out]) in (1, 2)
        error = capsys.readouterr().err
        assert out in error
        assert error.count("\n") == 1
