"""The live pipeline: nothing is lost, memory is bounded, and what it sends is what the files give."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_gym.capture.written import Written
from otel_gym.correlation.run import Run
from otel_gym.counters import counted
from otel_gym.settings import settings_from
from otel_gym.tracing import worker
from otel_gym.tracing.backfill import Selection, export_rollouts, rollouts_of
from otel_gym.tracing.backlog import Backlog
from otel_gym.tracing.cursors import Cursors
from otel_gym.tracing.encode import encode_span
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.files import fingerprint
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.pipeline import Pipeline, PipelineLimits, live_pipeline
from otel_gym.tracing.rollout import RolloutRecord, write_rollout_record
from otel_gym.tracing.sinks import EndpointSink
from otel_gym.tracing.spans import RecordPlace, span_from_record
from tests.tracing.receiver import Received, Receiver, Reply, rejecting, span_count
from tests.tracing.records import BASE_TIME, append, call_id, fill, gym_record

Captures = tuple[Path, Run]
OPTIONS = SpanOptions()
QUICK = PipelineLimits(interval_s=0.02)


@pytest.fixture
def pipeline(captures: Captures, receiver: Receiver) -> Iterator[Callable[..., Pipeline]]:
    """Makes started pipelines to the receiver, and closes them."""
    made: list[Pipeline] = []

    def make(url: str = "", limits: PipelineLimits = QUICK, follow: bool = False) -> Pipeline:
        endpoint = OtlpEndpoint(f"{url or receiver.url}/v1/traces", timeout_s=2.0)
        pipe = Pipeline(*captures, OPTIONS, endpoint, limits=limits, follow=follow)
        made.append(pipe)
        return pipe.start()

    yield make
    for pipe in made:
        pipe.close(0.1)


def ids(written: list[Written]) -> set[str]:
    return {str(each.record["model_call_id"])[:16] for each in written}


def test_offered_records_arrive_once_each(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """Every record offered to a running pipeline becomes exactly one span at the backend."""
    pipe = pipeline()
    assert pipe.flush(10)
    written = []
    for number in range(300):
        each = append(captures[0], f"{number % 5}-0", gym_record(number))
        written.append(each)
        pipe.offer(each)
    assert pipe.flush(10)
    assert sorted(span.span_id.hex() for span in receiver.spans) == sorted(ids(written))
    assert len(receiver.spans) == 300 == pipe.exported
    assert pipe.lag_s == 0.0
    assert pipe.queue_length == pipe.queue_bytes == 0
    assert receiver.requests[0].path == "/v1/traces"


def test_live_and_backfilled_spans_are_equal_byte_by_byte(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """What live export sent and what export from the files sends are the same bytes, roots included."""
    directory, run = captures
    pipe = pipeline()
    for each in fill(directory, rollouts=6, calls=8):
        pipe.offer(each)
    for rollout in range(6):
        record = RolloutRecord(
            rollout_id=f"{rollout}-0",
            started_at=BASE_TIME,
            completed_at=BASE_TIME + 500,
            reward=1.0,
        )
        write_rollout_record(directory, record)
        pipe.offer_rollout(record)
    assert pipe.close(10)
    live = receiver.distinct
    receiver.kept.clear()
    sink = EndpointSink(directory, run, OPTIONS, OtlpEndpoint(f"{receiver.url}/v1/traces"))
    rollouts = [rollout_id for rollout_id, _ in rollouts_of(directory, Selection())]
    summary = export_rollouts(directory, rollouts, run, OPTIONS, sink)
    assert summary.spans == 6 * 9
    assert receiver.distinct == live
    assert all(len(encodings) == 1 for encodings in live.values())


def test_a_full_queue_defers_to_the_files(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """Records that find the queue full are read back from their files; nothing is lost and memory stays bounded."""
    gate = threading.Event()

    def wait(request: Received) -> Reply:
        gate.wait(20)
        return Reply()

    receiver.answer = wait
    pipe = pipeline(limits=PipelineLimits(queue_max_spans=10, batch_max_spans=5, interval_s=0.01))
    deferred = counted("export.deferred")
    written = []
    for number in range(400):
        each = append(captures[0], f"{number % 7}-0", gym_record(number))
        written.append(each)
        pipe.offer(each)
        assert pipe.queue_length <= 10
    assert counted("export.deferred") > deferred
    assert not pipe.flush(0.05)
    assert pipe.lag_s > 0
    gate.set()
    assert pipe.flush(20)
    assert set(receiver.distinct) == ids(written)


def test_the_queue_is_bounded_by_bytes_too(
    captures: Captures, pipeline: Callable[..., Pipeline]
) -> None:
    """A few large records fill the queue as many small ones do."""
    record = gym_record(
        1, request={"model": "m", "messages": [{"role": "user", "content": "x" * 5000}]}
    )
    pipe = pipeline(
        "http://127.0.0.1:9",
        limits=PipelineLimits(queue_max_bytes=20_000, interval_s=5.0, batch_max_spans=1),
    )
    for _ in range(50):
        pipe.offer(append(captures[0], "1-0", record))
        assert pipe.queue_bytes <= 20_000


def test_a_dead_backend_costs_lag_not_data(
    captures: Captures, pipeline: Callable[..., Pipeline]
) -> None:
    """A backend that is away for the whole run gets everything when it comes back."""
    dead = Receiver()
    port = dead.port
    dead.close()
    pipe = pipeline(f"http://127.0.0.1:{port}")
    written = fill(captures[0], rollouts=5, calls=20)
    for each in written:
        pipe.offer(each)
    assert not pipe.flush(0.2)
    back = Receiver(port)
    try:
        assert pipe.flush(20)
        assert set(back.distinct) == ids(written)
    finally:
        back.close()


def test_a_restart_goes_on_at_the_cursor(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """A pipeline that was closed with a dead backend leaves a true cursor: the next one sends the rest, and only that."""
    directory, _ = captures
    first = pipeline()
    sent = fill(directory, rollouts=2, calls=5)
    for each in sent:
        first.offer(each)
    assert first.close(10)
    receiver.kept.clear()
    receiver.answer = lambda request: Reply(status=503)
    second = pipeline()
    unsent = [append(directory, f"{n % 3}-0", gym_record(100 + n)) for n in range(12)]
    for each in unsent:
        second.offer(each)
    assert not second.close(0.2)
    receiver.answer = lambda request: Reply()
    third = pipeline()
    assert third.flush(20)
    assert set(receiver.distinct) == ids(unsent)


def test_following_exports_what_is_appended(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """The sidecar sees old and new records and rollout records, each once, and never a torn line."""
    directory, _ = captures
    written = fill(directory, rollouts=3, calls=4)
    pipe = pipeline(follow=True)
    assert pipe.flush(20)
    assert set(receiver.distinct) == ids(written)
    more = [append(directory, "1-0", gym_record(50)), append(directory, "9-0", gym_record(51))]
    torn = directory / "2-0.capture.jsonl"
    line = b'{"model_call_id":"' + call_id(60).encode() + b'","dialect":"chat"}\n'
    with torn.open("ab") as file:
        file.write(line[:20])
    write_rollout_record(
        directory, RolloutRecord(rollout_id="1-0", started_at=BASE_TIME, completed_at=BASE_TIME)
    )
    assert pipe.flush(20)
    assert ids(more) < set(receiver.distinct)
    with torn.open("ab") as file:
        file.write(line[20:])
    assert pipe.flush(20)
    assert call_id(60)[:16] in receiver.distinct
    assert pipe.close(5)
    again = pipeline(follow=True)
    assert again.flush(20)
    assert again.exported == 0


def test_a_cleared_and_rewritten_file_is_exported_anew(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """A rollout that was cleared and run again under the same id is exported from its new beginning, live and following."""
    directory, _ = captures
    for follow in (False, True):
        pipe = pipeline(follow=follow)
        for number in range(5):
            pipe.offer(append(directory, "7-0", gym_record(200 + number)))
        assert pipe.flush(20)
        (directory / "7-0.capture.jsonl").unlink()
        pipe.offer(fresh := append(directory, "7-0", gym_record(300 + follow)))
        assert pipe.flush(20)
        assert ids([fresh]) <= set(receiver.distinct)
        pipe.close(5)


def test_a_poisonous_span_is_found_and_parked(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """A batch answered with 400 is halved until the one bad span is alone; it is parked with its place, the others arrive."""
    directory, _ = captures
    poison = call_id(13)[:16]

    def refuse(request: Received) -> Reply:
        return Reply(status=400, body=b"bad span") if poison.encode() in _hex(request) else Reply()

    receiver.answer = refuse
    parked = counted("export.parked")
    pipe = pipeline()
    written = fill(directory, rollouts=4, calls=10)
    for each in written:
        pipe.offer(each)
    assert pipe.flush(20)
    assert set(receiver.distinct) == ids(written) - {poison}
    assert counted("export.parked") == parked + 1
    (file,) = (directory / ".otel-gym" / "parked").iterdir()
    (line,) = file.read_text().splitlines()
    assert call_id(13) in line
    assert "bad span" in line
    assert pipe.close(5)
    again = pipeline()
    assert again.flush(20)
    assert again.exported == 0, "a parked span is not tried again and again"


def test_a_batch_that_is_too_large_is_split(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """413 is answered by smaller requests, whatever the configured size was."""
    receiver.answer = lambda request: Reply(status=413) if span_count(request) > 3 else Reply()
    pipe = pipeline()
    written = fill(captures[0], rollouts=2, calls=15)
    for each in written:
        pipe.offer(each)
    assert pipe.flush(20)
    assert set(receiver.distinct) == ids(written)


def test_partial_success_is_read(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """A 200 that says it rejected a span is no success for that span: it is found and parked, with the backend's reason."""
    poison = call_id(3)[:16]
    receiver.answer = lambda request: (
        rejecting(1, "too odd") if poison.encode() in _hex(request) else Reply()
    )
    pipe = pipeline()
    written = fill(captures[0], rollouts=1, calls=10)
    for each in written:
        pipe.offer(each)
    assert pipe.flush(20)
    assert set(receiver.distinct) == ids(written) - {poison}
    (file,) = (captures[0] / ".otel-gym" / "parked").iterdir()
    assert "too odd" in file.read_text()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 401, 404])
def test_an_answer_that_may_change_is_waited_for(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline], status: int
) -> None:
    """Overload, faults and a wrong set-up are tried again, after Retry-After where it is given; nothing is parked."""
    answers = iter([Reply(status=status, headers={"retry-after": "0"})] * 2)
    receiver.answer = lambda request: next(answers, Reply())
    retried = counted("export.retried")
    pipe = pipeline()
    pipe.offer(append(captures[0], "1-0", gym_record(1)))
    assert pipe.flush(20)
    assert counted("export.retried") == retried + 2
    assert set(receiver.distinct) == {call_id(1)[:16]}


def test_batches_stay_below_their_size(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """No request is larger than the configured bytes, however large its spans are."""
    pipe = pipeline(limits=PipelineLimits(batch_max_bytes=6000, interval_s=0.02))
    written = fill(captures[0], rollouts=3, calls=20)
    for each in written:
        pipe.offer(each)
    assert pipe.flush(20)
    assert set(receiver.distinct) == ids(written)
    assert max(len(request.body) for request in receiver.requests) <= 6000


def test_a_line_that_is_no_record_is_parked_and_passed(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """A damaged line in a file stops neither its neighbours nor the cursor."""
    first = append(captures[0], "1-0", gym_record(1))
    with (captures[0] / "1-0.capture.jsonl").open("ab") as file:
        file.write(b"damaged\n")
    second = append(captures[0], "1-0", gym_record(2))
    pipe = pipeline()
    assert pipe.flush(20)
    assert pipe.close(5)
    assert set(receiver.distinct) == ids([first, second])
    again = pipeline()
    assert again.flush(20)
    assert again.exported == 0


def test_records_of_a_cleared_attempt_are_passed_over(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """A straggler that went to the stale file is not shown in the new attempt's trace."""
    pipe = pipeline()
    late = append(captures[0], "1-0", gym_record(1))
    (captures[0] / "1-0.capture.jsonl").unlink()
    pipe.offer(
        Written("1-0", late.record, captures[0] / "1-0.stale.jsonl", 0, late.length_bytes, True)
    )
    assert pipe.flush(20)
    assert receiver.spans == []


def test_two_processes_share_a_directory(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """Two servers write one rollout's file in turns; each exports its own records, and together nothing is left over."""
    first, second = pipeline(), pipeline()
    assert first.flush(10)
    assert second.flush(10)
    written = []
    for number in range(60):
        each = append(captures[0], "1-0", gym_record(number))
        written.append(each)
        (first if number % 3 else second).offer(each)
    assert first.close(10)
    assert second.close(10)
    assert len(receiver.spans) == 60
    assert set(receiver.distinct) == ids(written)
    cursor = Cursors(captures[0], f"{receiver.url}/v1/traces").load()["1-0.capture.jsonl"]
    assert cursor.done.missing(written[-1].offset_bytes + written[-1].length_bytes) == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_leaves_each_process_its_own(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """After a fork the child exports what it is offered, with a thread and a connection of its own."""
    pipe = pipeline()
    pipe.offer(append(captures[0], "1-0", gym_record(1)))
    assert pipe.flush(10)
    child = os.fork()
    if child == 0:
        ok = False
        try:
            pipe.offer(append(captures[0], "2-0", gym_record(2)))
            ok = pipe.close(10)
        finally:
            os._exit(0 if ok else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    pipe.offer(append(captures[0], "3-0", gym_record(3)))
    assert pipe.flush(10)
    assert set(receiver.distinct) == {call_id(n)[:16] for n in (1, 2, 3)}


def test_closing_is_bounded_when_the_backend_hangs(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """A backend that never answers cannot hold the process: close gives up in time and says that something is left."""
    gate = threading.Event()

    def hang(request: Received) -> Reply:
        gate.wait(30)
        return Reply()

    receiver.answer = hang
    pipe = pipeline()
    pipe.offer(append(captures[0], "1-0", gym_record(1)))
    assert pipe.close(0.2) is False, "a close that waits for the answer would say true"
    gate.set()


def test_headers_and_compression_of_the_variables_are_used(
    captures: Captures, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standard variables reach the wire: headers (percent-decoded) and gzip."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20x,tenant=a")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    settings = settings_from(
        {"observability_enabled": True, "model_call_capture_dir": str(captures[0])}
    )
    pipe = live_pipeline(settings, *captures)
    assert pipe is not None
    pipe.start()
    pipe.offer(append(captures[0], "1-0", gym_record(1)))
    assert pipe.close(10)
    (request, *_) = receiver.requests
    assert request.headers["authorization"] == "Bearer x"
    assert request.headers["tenant"] == "a"
    assert request.headers["content-encoding"] == "gzip"
    assert len(receiver.spans) == 1


@pytest.mark.parametrize("export", ["sidecar", "off"])
def test_no_pipeline_where_this_process_does_not_export(captures: Captures, export: str) -> None:
    """With a sidecar, without export, and without an endpoint the server has no pipeline at all."""
    settings = settings_from(
        {"otel_gym": {"export": export, "otlp_endpoint": "http://127.0.0.1:4318"}}
    )
    assert live_pipeline(settings, *captures) is None
    assert live_pipeline(settings_from({}), *captures) is None


def test_the_span_of_a_record_is_the_same_wherever_it_is_made(captures: Captures, run: Run) -> None:
    """The mapping is pure: the record as written and the record as read back give the same bytes."""
    import orjson

    record = gym_record(1, "messages")
    place = RecordPlace("1-0", "1-0.capture.jsonl", 0)
    read_back = orjson.loads(orjson.dumps(record))
    assert encode_span(span_from_record(record, place, run, OPTIONS)) == encode_span(
        span_from_record(read_back, place, run, OPTIONS)
    )


def _hex(request: Received) -> bytes:
    return b" ".join(
        span.span_id.hex().encode()
        for part in request.message.resource_spans
        for scope in part.scope_spans
        for span in scope.spans
    )


def test_a_record_that_cannot_be_mapped_is_parked(
    captures: Captures,
    receiver: Receiver,
    pipeline: Callable[..., Pipeline],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault in the mapping of one record stops neither the others nor the cursor, and is told."""
    from otel_gym.tracing import worker

    def faulty(raw: Any, *rest: Any) -> Any:
        if raw["model_call_id"] == call_id(3):
            raise RuntimeError("a fault")
        return span_from_record(raw, *rest)

    monkeypatch.setattr(worker, "span_from_record", faulty)
    pipe = pipeline()
    written = fill(captures[0], rollouts=1, calls=6)
    for each in written:
        pipe.offer(each)
    assert pipe.flush(20)
    assert set(receiver.distinct) == ids(written) - {call_id(3)[:16]}
    (file,) = (captures[0] / ".otel-gym" / "parked").iterdir()
    assert "a fault" in file.read_text()


def test_a_fault_in_metrics_does_not_concern_spans(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """What goes wrong while a call is counted is counted itself; the span goes out."""

    def faulty(span: Any, record: Any) -> None:
        raise RuntimeError("a fault")

    failures = counted("export.failures")
    pipe = pipeline()
    pipe.on_span = faulty
    pipe.offer(append(captures[0], "1-0", gym_record(1)))
    assert pipe.flush(20)
    assert len(receiver.spans) == 1
    assert counted("export.failures") == failures + 1


def test_remembered_places_are_bounded(captures: Captures) -> None:
    """However several producers take turns in one file, a full backlog remembers a bounded number of places and loses none."""
    backlog = Backlog(max_records=0, max_bytes=0)
    for number in range(2000):
        each = append(captures[0], "1-0", gym_record(number))
        if number % 2 == 0:
            assert not backlog.offer(each)
    gaps = []
    while (gap := backlog.first_gap()) is not None:
        gaps.append(gap)
        backlog.gap_reached(gap, gap.end)
    assert len(gaps) <= 64
    assert gaps[0].start == 0
    assert gaps[-1].end > 1998 * 900


def test_a_follower_sends_only_what_the_cursor_lacks(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """A range in the middle of a file that an earlier process could not send is sent, and nothing around it again."""
    directory, _ = captures
    written = [append(directory, "1-0", gym_record(number)) for number in range(9)]
    cursors = Cursors(directory, f"{receiver.url}/v1/traces")
    mark = fingerprint(directory, "1-0")
    assert mark is not None
    for first, last in ((0, 2), (6, 8)):
        end = written[last].offset_bytes + written[last].length_bytes
        cursors.done("1-0.capture.jsonl", mark, written[first].offset_bytes, end)
    cursors.save()
    pipe = pipeline(follow=True)
    assert pipe.flush(20)
    assert pipe.exported == 3
    assert set(receiver.distinct) == ids(written[3:6])
    more = append(directory, "1-0", gym_record(10))
    assert pipe.flush(20)
    assert pipe.exported == 4
    assert ids([more]) <= set(receiver.distinct)


def test_a_follower_knows_a_file_that_was_begun_anew_among_thousands(
    captures: Captures,
    receiver: Receiver,
    pipeline: Callable[..., Pipeline],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rollout that is cleared and written anew, longer than before, is exported from its start, however many other files were read meanwhile."""
    monkeypatch.setattr(worker, "KNOWN_FILES", 2)
    directory, _ = captures
    for rollout in range(6):
        append(directory, f"{rollout}-0", gym_record(rollout))
    pipe = pipeline(follow=True)
    assert pipe.flush(20)
    (directory / "0-0.capture.jsonl").unlink()
    anew = [append(directory, "0-0", gym_record(100 + number)) for number in range(3)]
    assert pipe.flush(20)
    assert ids(anew) <= set(receiver.distinct)


@pytest.mark.parametrize("calls", [1, 2])
def test_a_follower_sees_a_new_attempt_that_is_as_long_as_the_old_one(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline], calls: int
) -> None:
    """A rollout that is cleared and written anew between two looks, to the same length, is exported anew; a file that was only touched is not."""
    directory, _ = captures
    old = [append(directory, "0-0", gym_record(number)) for number in range(calls)]
    pipe = pipeline(follow=True)
    assert pipe.flush(20)
    path = directory / "0-0.capture.jsonl"
    os.utime(path)
    assert pipe.flush(20)
    assert len(receiver.spans) == calls
    path.unlink()
    new = [append(directory, "0-0", gym_record(10 + number)) for number in range(calls)]
    assert sum(each.length_bytes for each in new) == sum(each.length_bytes for each in old)
    assert pipe.flush(20)
    assert set(receiver.distinct) == ids([*old, *new])
    pipe.close(5)
    receiver.kept.clear()
    assert pipeline(follow=True).flush(20)
    assert receiver.distinct == {}, "the cursor is that of the new file"


def test_a_packed_file_is_caught_up_like_a_plain_one(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """Packing a rollout's file neither loses what was not exported nor sends the rest again."""
    import zstandard

    directory, _ = captures
    first = pipeline()
    sent = append(directory, "1-0", gym_record(1))
    first.offer(sent)
    assert first.close(10)
    unsent = append(directory, "1-0", gym_record(2))
    plain = directory / "1-0.capture.jsonl"
    (directory / "1-0.capture.jsonl.zst").write_bytes(zstandard.compress(plain.read_bytes()))
    plain.unlink()
    receiver.kept.clear()
    for follow in (False, True):
        again = pipeline(follow=follow)
        assert again.flush(20)
        assert again.exported == (0 if follow else 1)
        assert set(receiver.distinct) == ids([unsent])
        again.close(5)


def test_a_file_that_cannot_be_read_does_not_hold_up_the_others(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """An unreadable file waits for better times, is counted, and the rest of the directory is exported."""
    directory, _ = captures
    (directory / "0-9.capture.jsonl").mkdir()
    written = fill(directory, rollouts=3, calls=3)
    failures = counted("export.failures")
    pipe = pipeline(follow=True)
    assert not pipe.flush(3)
    assert set(receiver.distinct) == ids(written)
    assert counted("export.failures") > failures
    (directory / "0-9.capture.jsonl").rmdir()
    assert pipe.flush(20)
