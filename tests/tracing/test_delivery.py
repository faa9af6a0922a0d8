"""A failure that may be the backend's or a span's: the backend is asked, and one bad span holds up no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from otel_gym.correlation.run import Run
from otel_gym.counters import counted
from otel_gym.errors import ExportError
from otel_gym.tracing import delivery
from otel_gym.tracing.backfill import export_rollouts
from otel_gym.tracing.backlog import Backlog
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.pipeline import Pipeline, PipelineLimits
from otel_gym.tracing.rollout import RolloutRecord, write_rollout_record
from otel_gym.tracing.scan import Gap
from otel_gym.tracing.sinks import EndpointSink
from tests.tracing.receiver import Received, Receiver, Reply
from tests.tracing.records import BASE_TIME, append, call_id, fill, gym_record

Captures = tuple[Path, Run]
OPTIONS = SpanOptions()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of milliseconds."""
    monkeypatch.setattr(delivery, "FIRST_BACKOFF_S", 0.002)
    monkeypatch.setattr(delivery, "LONGEST_BACKOFF_S", 0.02)


@pytest.fixture
def pipeline(captures: Captures, receiver: Receiver) -> Iterator[Callable[..., Pipeline]]:
    """Makes started pipelines to the receiver, and closes them."""
    made: list[Pipeline] = []

    def make(follow: bool = False, limits: PipelineLimits | None = None) -> Pipeline:
        pipe = Pipeline(
            *captures,
            OPTIONS,
            OtlpEndpoint(f"{receiver.url}/v1/traces", timeout_s=2.0),
            limits=limits or PipelineLimits(interval_s=0.02),
            follow=follow,
        )
        made.append(pipe)
        return pipe.start()

    yield make
    for pipe in made:
        pipe.close(0.1)


def failing_on(*poison: str, status: int = 500) -> Callable[[Received], Reply]:
    """A backend that breaks on a request which holds one of these spans."""
    bad = {bytes.fromhex(call[:16]) for call in poison}

    def answer(request: Received) -> Reply:
        spans = request.message.resource_spans[0].scope_spans[0].spans
        return Reply(status, b"boom", keep=False) if bad & {s.span_id for s in spans} else Reply()

    return answer


def parked(directory: Path) -> list[dict[str, object]]:
    """What stands in the parked files."""
    return [
        orjson.loads(line)
        for path in sorted((directory / ".otel-gym" / "parked").glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
    ]


@pytest.mark.parametrize("status", [500, 502, 403])
def test_a_span_that_breaks_the_backend_holds_up_no_other(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline], status: int
) -> None:
    """A backend that answers 500 (a proxy before it 502, a firewall 403) to one span gets all the others; that one is put aside with the reason and counted."""
    directory, _ = captures
    receiver.answer = failing_on(call_id(3), call_id(17), status=status)
    before = counted("export.parked")
    pipe = pipeline()
    for each in fill(directory, rollouts=4, calls=8):
        pipe.offer(each)
    assert pipe.flush(20)
    expected = {call_id(number)[:16] for number in range(32) if number not in (3, 17)}
    assert set(receiver.distinct) == expected
    entries = parked(directory)
    assert {entry["id"] for entry in entries} == {call_id(3), call_id(17)}
    assert all(f"HTTP {status} boom" in str(entry["reason"]) for entry in entries)
    assert not any(entry["final"] for entry in entries)
    assert counted("export.parked") == before + 2


def test_a_span_put_aside_is_tried_again_at_the_next_start(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """The cursor stays before a span that only failed: a backend that was mended gets it from the next process, and nothing twice."""
    directory, _ = captures
    receiver.answer = failing_on(call_id(3))
    pipe = pipeline()
    for each in fill(directory, rollouts=2, calls=4):
        pipe.offer(each)
    assert pipe.flush(20)
    assert pipe.close(5)
    receiver.kept.clear()
    receiver.answer = lambda request: Reply()
    assert pipeline().flush(20)
    assert set(receiver.distinct) == {call_id(3)[:16]}


def test_a_backend_that_fails_altogether_loses_nothing(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """500 to everything is the backend's fault: nothing is put aside, whether it had accepted spans before or not, and all arrives when it is well again."""
    directory, _ = captures
    receiver.answer = lambda request: Reply(500, keep=False)
    before = counted("export.parked")
    pipe = pipeline()
    first = fill(directory, rollouts=3, calls=6)
    for each in first:
        pipe.offer(each)
    write_rollout_record(
        directory,
        RolloutRecord(rollout_id="1-0", started_at=BASE_TIME, completed_at=BASE_TIME + 9),
    )
    assert not pipe.flush(0.5)
    receiver.answer = lambda request: Reply()
    assert pipe.flush(20)
    receiver.answer = lambda request: Reply(500, keep=False)
    second = [append(directory, f"{number % 3}-0", gym_record(100 + number)) for number in range(9)]
    for each in second:
        pipe.offer(each)
    assert not pipe.flush(0.5)
    receiver.answer = lambda request: Reply()
    assert pipe.flush(20)
    calls = {str(each.record["model_call_id"])[:16] for each in [*first, *second]}
    assert set(receiver.distinct) > calls
    assert len(receiver.distinct) == len(calls) + 1, "and the root"
    assert parked(directory) == []
    assert counted("export.parked") == before


def test_a_backend_that_fails_now_and_then_loses_nothing(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """A backend that fails two requests of three, whatever is in them, gets every span in the end."""
    directory, _ = captures
    turn = iter(range(10**6))
    receiver.answer = lambda request: Reply() if next(turn) % 3 == 2 else Reply(500, keep=False)
    pipe = pipeline()
    written = fill(directory, rollouts=4, calls=8)
    for each in written:
        pipe.offer(each)
    assert pipe.flush(30)
    assert len(receiver.distinct) == len(written)
    assert parked(directory) == []


def test_bad_spans_at_the_very_start_let_others_go_first(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """Where nothing was ever accepted nobody can tell who is at fault: the spans go back to the end of the line, and are judged once others were taken."""
    directory, _ = captures
    bad = [call_id(number) for number in range(4)]
    receiver.answer = failing_on(*bad)
    for number in range(4):
        append(directory, "0-0", gym_record(number))
    metrics: list[str] = []
    pipe = pipeline(limits=PipelineLimits(interval_s=0.02, batch_max_spans=2))
    pipe.on_span = lambda span, record: metrics.append(span.span_id)
    assert not pipe.flush(0.3)
    assert parked(directory) == []
    good = [append(directory, "1-0", gym_record(10 + number)) for number in range(4)]
    for each in good:
        pipe.offer(each)
    assert pipe.flush(20)
    assert set(receiver.distinct) == {call_id(10 + number)[:16] for number in range(4)}
    assert {entry["id"] for entry in parked(directory)} == set(bad)
    assert sorted(metrics) == sorted(receiver.distinct), "each call is counted once"


def test_a_wrong_address_costs_no_count(
    captures: Captures, receiver: Receiver, pipeline: Callable[..., Pipeline]
) -> None:
    """While everything is answered with 404 nothing piles up in memory, and afterwards each call has been counted once and arrived."""
    directory, _ = captures
    receiver.answer = lambda request: Reply(404, keep=False)
    metrics: list[str] = []
    pipe = pipeline(limits=PipelineLimits(interval_s=0.01, queue_max_spans=20, batch_max_spans=16))
    pipe.on_span = lambda span, record: metrics.append(span.span_id)
    written = fill(directory, rollouts=3, calls=100)
    for each in written:
        pipe.offer(each)
    assert not pipe.flush(2.0)
    assert pipe.queue_length <= 20
    receiver.answer = lambda request: Reply()
    assert pipe.flush(30)
    calls = sorted(str(each.record["model_call_id"])[:16] for each in written)
    assert sorted(receiver.distinct) == calls
    assert sorted(metrics) == calls


def test_what_was_put_back_waits_for_others_but_not_for_an_unreadable_file() -> None:
    """Places that were put back come last; where those before them cannot be read, they have their turn all the same."""
    backlog = Backlog(1, 1)
    backlog.put_back("0-0", 0, 10, 1.0)
    backlog.put_back("0-0", 10, 20, 2.0)
    backlog.add_gaps([Gap("1-0", 0, 5, True, 3.0)])
    unreadable = backlog.first_gap()
    assert unreadable == Gap("1-0", 0, 5, True, 3.0)
    backlog.put_off(unreadable)
    again = backlog.first_gap()
    assert again == Gap("0-0", 0, 20, False, 1.0)
    backlog.gap_reached(again, 20)
    assert backlog.first_gap() is unreadable
    assert backlog.oldest() == 3.0
    backlog.gap_reached(unreadable, 5)
    assert backlog.is_empty()


def test_an_export_from_files_goes_past_a_span_that_fails(
    captures: Captures, receiver: Receiver
) -> None:
    """`otel-gym export` puts such a span aside too, and says so by its count; a backend that fails altogether is an error."""
    directory, run = captures
    fill(directory, rollouts=2, calls=6)
    receiver.answer = failing_on(call_id(3))
    endpoint = OtlpEndpoint(f"{receiver.url}/v1/traces")
    sink = EndpointSink(directory, run, OPTIONS, endpoint)
    summary = export_rollouts(directory, ["0-0", "1-0"], run, OPTIONS, sink)
    assert summary.parked == 1
    assert len(receiver.distinct) == 12 - 1 + 2
    receiver.answer = lambda request: Reply(500, b"boom", keep=False)
    sink = EndpointSink(directory, run, OPTIONS, endpoint, give_up_s=0.3)
    with pytest.raises(ExportError, match="HTTP 500 boom"):
        export_rollouts(directory, ["0-0", "1-0"], run, OPTIONS, sink)


def test_a_backend_that_asks_to_come_back_at_once_is_not_flooded(
    captures: Captures,
    receiver: Receiver,
    pipeline: Callable[..., Pipeline],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`Retry-After: 0` is no licence to send without a pause."""
    monkeypatch.setattr(delivery, "FIRST_BACKOFF_S", 0.1)
    receiver.answer = lambda request: Reply(503, headers={"retry-after": "0"}, keep=False)
    pipe = pipeline()
    pipe.offer(append(captures[0], "0-0", gym_record(1)))
    assert not pipe.flush(0.5)
    assert len(receiver.requests) <= 6
