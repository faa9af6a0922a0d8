"""Storage that is full or read-only, and lines of any length: the spans go out, and the cursor lags but never lies."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.correlation.run import Run, open_run
from otel_gym.counters import counted
from otel_gym.tracing import files
from otel_gym.tracing.cursors import Cursors
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.files import read_lines
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.pipeline import Pipeline, PipelineLimits
from tests.reliability.mounts import Mount
from tests.tracing.receiver import Receiver
from tests.tracing.records import append, fill, gym_record

QUICK = PipelineLimits(interval_s=0.02)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """A small file system of its own."""
    made = Mount(tmp_path / "mount")
    made.tmpfs("size=1m")
    yield made
    made.close()


def follower(directory: Path, run: Run, receiver: Receiver) -> Pipeline:
    endpoint = OtlpEndpoint(f"{receiver.url}/v1/traces")
    return Pipeline(directory, run, SpanOptions(), endpoint, limits=QUICK, follow=True).start()


def test_a_full_disk_lets_only_the_cursor_lag(
    mount: Mount, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """With no room for the cursor all spans go out, the failure is counted and told once, and when there is room again it is written whole."""
    caplog.set_level(logging.WARNING)
    run = open_run(mount.path, run_id="run-1")
    fill(mount.path, rollouts=4, calls=10)
    Cursors(mount.path, "any").done("x", "y", 0, 1)
    filler = mount.path / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    before = counted("export.failures")
    pipe = follower(mount.path, run, receiver)
    assert pipe.flush(20)
    assert len(receiver.distinct) == 40
    assert counted("export.failures") > before
    assert [
        record.message for record in caplog.records if "cursor" in record.message
    ].__len__() == 1
    filler.unlink()
    append(mount.path, "9-0", gym_record(99))
    assert pipe.flush(20)
    assert pipe.close(5)
    receiver.kept.clear()
    again = follower(mount.path, run, receiver)
    assert again.flush(20)
    assert again.close(5)
    assert receiver.distinct == {}, "the cursor had everything"


def test_a_read_only_directory_is_exported(
    mount: Mount, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """A sidecar that may only read exports everything, and says that its cursor is not kept."""
    caplog.set_level(logging.WARNING)
    run = open_run(mount.path, run_id="run-1")
    fill(mount.path, rollouts=4, calls=5)
    mount.remount("ro")
    pipe = follower(mount.path, run, receiver)
    assert pipe.flush(20)
    assert pipe.close(5)
    assert len(receiver.distinct) == 20
    assert "the cursor cannot be written: Read-only file system" in caplog.text


@given(
    st.lists(st.integers(0, 60), max_size=12),
    st.integers(1, 40),
    st.integers(0, 6),
    st.integers(0, 12),
    st.booleans(),
)
def test_lines_do_not_depend_on_the_blocks_they_are_read_in(
    lengths: list[int], block: int, first: int, last: int, is_torn: bool
) -> None:
    """Whatever the size of lines and blocks, the lines that begin within the bounds come whole, with their places, and a torn one does not."""
    lines = [b'"' + b"x" * length + b'"\n' if length else b"\n" for length in lengths]
    starts = [sum(map(len, lines[:index])) for index in range(len(lines) + 1)]
    data = b"".join(lines) + (b'"torn' if is_torn else b"")
    start = starts[min(first, len(lines))]
    end = starts[min(last, len(lines))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_READ_BYTES", block)
        found = [
            (line.offset_bytes, line.length_bytes)
            for line in read_lines(io.BytesIO(data), start, end)
        ]
    assert found == [
        (at, len(line))
        for at, line in zip(starts, lines, strict=False)
        if start <= at < end and line.strip()
    ]
