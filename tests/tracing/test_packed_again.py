"""A rollout that was packed and then written to again."""

from __future__ import annotations

import os
from pathlib import Path

from otel_gym.capture.pack import pack_rollout
from otel_gym.capture.store import CaptureStore
from otel_gym.correlation.run import Run
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.files import open_capture, read_lines
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.pipeline import Pipeline, PipelineLimits
from otel_gym.tracing.scan import capture_sizes
from tests.tracing.receiver import Receiver
from tests.tracing.records import gym_record


def test_both_parts_are_read_as_one_file(tmp_path: Path) -> None:
    """Export reads the packed part and what came after it, at the offsets that live export gave."""
    store = CaptureStore(tmp_path)
    written = [store.record("1-0", gym_record(number)) for number in range(3)]
    os.utime(store.path_for("1-0"), (1, 1))
    assert pack_rollout(store, "1-0").state == "packed"
    written += [store.record("1-0", gym_record(number)) for number in range(3, 5)]
    assert store.path_for("1-0").exists() and store.packed_path_for("1-0").exists()
    expected = [
        (one.offset_bytes, one.length_bytes, one.record["model_call_id"]) for one in written
    ]
    file = open_capture(tmp_path, "1-0")
    assert file is not None
    with file:
        found = [
            (line.offset_bytes, line.length_bytes, (line.record or {})["model_call_id"])
            for line in read_lines(file)
        ]
    assert found == expected
    assert capture_sizes(tmp_path)["1-0"] == expected[-1][0] + expected[-1][1]
    again = open_capture(tmp_path, "1-0")
    assert again is not None
    with again:
        later = [line.offset_bytes for line in read_lines(again, expected[3][0])]
    assert later == [one[0] for one in expected[3:]]


def test_a_follower_sees_what_was_packed_unseen_and_what_comes_after(
    captures: tuple[Path, Run], receiver: Receiver
) -> None:
    """A sidecar loses neither the records that were appended just before their file was packed, nor those that are written after it."""
    directory, run = captures
    store = CaptureStore(directory)
    endpoint = OtlpEndpoint(f"{receiver.url}/v1/traces")
    pipe = Pipeline(
        directory, run, SpanOptions(), endpoint, limits=PipelineLimits(interval_s=0.02), follow=True
    ).start()
    try:
        store.record("1-0", gym_record(0))
        assert pipe.flush(20)
        pipe._worker.scan = lambda **_: None  # type: ignore[method-assign] # no scan comes between
        store.record("1-0", gym_record(1))
        os.utime(store.path_for("1-0"), (1, 1))
        assert pack_rollout(store, "1-0").state == "packed"
        del pipe._worker.scan
        assert pipe.flush(20)
        assert len(receiver.distinct) == 2
        store.record("1-0", gym_record(2))
        assert pipe.flush(20)
        assert len(receiver.distinct) == len(receiver.spans) == 3, "each was sent once"
    finally:
        pipe.close(5)
        store.close()
