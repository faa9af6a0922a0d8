"""Root spans of live exports: a rollout record is found whatever the clocks, the file system and its neighbours do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.pipeline import Pipeline, PipelineLimits
from otel_gym.tracing.rollout import RolloutRecord, rollout_record_path, write_rollout_record
from otel_gym.tracing.rollout_files import RolloutFiles
from otel_gym.tracing.spans import rollout_span
from tests.tracing.records import append, gym_record
from tests.tracing.test_never_loses import OPTIONS, RUN, Backend


class Clock:
    """Monotonic seconds that go on only when told: on the real clock a look puts off the next one for as long as it took, ten times over."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _write(directory: Path, rollout_id: str, reward: float = 0.0) -> str:
    record = RolloutRecord(rollout_id=rollout_id, started_at=1.0, completed_at=2.0, reward=reward)
    write_rollout_record(directory, record)
    return rollout_span(record.to_mapping(), RUN, OPTIONS).span_id


def _stamp(directory: Path, stamp_ns: int) -> None:
    """What a kernel does whose tick came late: the change has the time of an earlier one."""
    os.utime(directory, ns=(stamp_ns, stamp_ns))


@pytest.mark.parametrize("behind_s", [0, 0.5, 60, -60])
def test_a_record_under_an_old_time_stamp_is_found(tmp_path: Path, behind_s: float) -> None:
    """A record that appears just after a look, under the same time stamp of the directory, is told by the next look, however the file system's clock stands."""
    stamp_ns = time.time_ns() - int(behind_s * 1e9)
    files = RolloutFiles(tmp_path, clock=Clock())
    _write(tmp_path, "0-0")
    _stamp(tmp_path, stamp_ns)
    assert files.changed() == ["0-0"]
    _write(tmp_path, "1-0")
    _stamp(tmp_path, stamp_ns)
    assert files.changed() == ["1-0"]
    assert files.changed() == []


def test_a_change_without_any_time_stamp_is_found_in_bounded_time(tmp_path: Path) -> None:
    """Where the directory's time stamp never changes, a record is told half a minute later at the latest, and at once where that is asked."""
    clock = Clock()
    files = RolloutFiles(tmp_path, clock=clock)
    for number in range(4):
        _write(tmp_path, f"{number}-0")
        _stamp(tmp_path, 10**18)
        if number < 3:
            clock.now += 31
            assert files.changed() == [f"{number}-0"]
    assert files.changed() == []
    assert files.changed(at_once=True) == ["3-0"]


def test_a_replaced_record_of_equal_size_and_time_is_found(tmp_path: Path) -> None:
    """A record that replaces one of the same length within one tick of the clock is told."""
    files = RolloutFiles(tmp_path, clock=Clock())
    for reward in (1.0, 2.0):
        _write(tmp_path, "0-0", reward)
        _stamp(rollout_record_path(tmp_path, "0-0"), 10**18)
        assert files.changed() == ["0-0"]


def test_one_entry_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    """Beside a record that is a loop of links all others are told; it is tried again each time, and told when it can be read, though nothing in the directory changed."""
    beside = tmp_path / "beside"
    directory = tmp_path / "captures"
    directory.mkdir()
    for number in range(5):
        _write(directory, f"{number}-0")
    rollout_record_path(directory, "9-0").symlink_to(beside)
    beside.symlink_to(rollout_record_path(directory, "9-0"))
    files = RolloutFiles(directory, clock=Clock())
    assert sorted(files.changed()) == ["0-0", "1-0", "2-0", "3-0", "4-0", "9-0"]
    for _ in range(3):
        assert files.read("9-0") is None
        assert files.changed() == ["9-0"]
    beside.unlink()
    beside.write_bytes(b'{"reward": 1.0}\n')
    assert files.read("9-0") == ({"reward": 1.0, "rollout_id": "9-0"}, b'{"reward": 1.0}\n')


def test_a_look_that_fails_is_made_up_for(tmp_path: Path) -> None:
    """While the directory is away nothing is forgotten: when it is back under its old time stamp, its records are told."""
    directory, away = tmp_path / "captures", tmp_path / "away"
    directory.mkdir()
    files = RolloutFiles(directory, clock=Clock())
    assert files.changed() == []
    _write(directory, "0-0")
    directory.rename(away)
    with pytest.raises(FileNotFoundError):
        files.changed()
    away.rename(directory)
    assert files.changed() == ["0-0"]


def test_a_large_directory_is_not_looked_at_all_the_time(tmp_path: Path) -> None:
    """After a look that took long the next one waits ten times as long, and then tells what came meanwhile."""
    clock = Clock()

    def slow() -> float:
        clock.now += 0.5
        return clock.now

    files = RolloutFiles(tmp_path, clock=slow)
    assert files.changed() == []
    _write(tmp_path, "0-0")
    looks = 1
    while not files.changed():
        looks += 1
    assert looks == 9


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def pipeline(tmp_path: Path, backend: Backend) -> Iterator[Callable[[], Pipeline]]:
    pipes: list[Pipeline] = []

    def make() -> Pipeline:
        endpoint = OtlpEndpoint("http://backend/v1/traces")
        limits = PipelineLimits(queue_max_spans=64, batch_max_spans=4, interval_s=0.001)
        pipe = Pipeline(tmp_path, RUN, OPTIONS, endpoint, limits=limits, sender=lambda: backend)
        pipes.append(pipe.start())
        return pipe

    yield make
    for pipe in pipes:
        pipe.close(0.1)


def test_roots_do_not_wait_behind_calls(
    tmp_path: Path, backend: Backend, pipeline: Callable[[], Pipeline]
) -> None:
    """While calls come faster than the backend takes them, a root goes out with the next batch."""
    pipe = pipeline()
    assert pipe.flush(10)
    numbers = iter(range(400))  # shared by two threads, each of which takes its own from it
    backend.poison = ""
    send = backend.send

    def refilling(body: bytes) -> object:
        """Each request lets more calls come than it held."""
        answer = send(body)
        for number in islice(numbers, 6):
            pipe.offer(append(tmp_path, "0-0", gym_record(number)))
        return answer

    backend.send = refilling  # type: ignore[assignment, method-assign]
    for number in islice(numbers, 20):
        pipe.offer(append(tmp_path, "0-0", gym_record(number)))
    record = RolloutRecord(rollout_id="5-0", started_at=1.0, completed_at=2.0)
    write_rollout_record(tmp_path, record)
    pipe.offer_rollout(record)
    there = len(backend.spans)
    root = rollout_span(record.to_mapping(), RUN, OPTIONS).span_id
    deadline = time.monotonic() + 20
    while root not in backend.spans and time.monotonic() < deadline:
        time.sleep(0.001)
    before = list(backend.spans).index(root)
    assert pipe.flush(20)
    assert len(backend.spans) == 400 - len(list(numbers)) + 1
    assert before - there < 40


def test_a_live_export_tells_roots_under_one_time_stamp(
    tmp_path: Path, backend: Backend, pipeline: Callable[[], Pipeline]
) -> None:
    """Roots of records that another process writes arrive though every change of the directory bears one time stamp."""
    pipe = pipeline()
    wanted = set()
    for number in range(5):
        wanted.add(_write(tmp_path, f"{number}-0"))
        _stamp(tmp_path, 10**18)
        assert pipe.flush(10)
        assert wanted <= set(backend.spans)
