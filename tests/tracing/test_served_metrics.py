"""Self-metrics in sidecar mode: what serving processes count reaches the sidecar's meters by files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_gym.capture.writer import RecordWriter
from otel_gym.correlation.run import Run
from otel_gym.counters import count, counted, counted_by_label
from otel_gym.settings import settings_from
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.metrics import Metrics, install_metrics
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.pipeline import Pipeline
from otel_gym.tracing.process_metrics import HISTOGRAMS, ProcessMetricsFile
from otel_gym.tracing.served_metrics import ServedMetrics

Captures = tuple[Path, Run]


class Writer:
    """What is observed of a writer."""

    def __init__(self) -> None:
        self.waiting = 0
        self.waiting_bytes = 0
        self.batch: Callable[[int, float, float], None] = lambda *_: None

    def add_batch_listener(self, listener: Callable[[int, float, float], None]) -> None:
        self.batch = listener


def sidecar(captures: Captures) -> tuple[Metrics, InMemoryMetricReader]:
    """The metrics of a sidecar that is not started."""
    directory, run = captures
    endpoint = OtlpEndpoint("http://127.0.0.1:1/v1/traces")
    pipeline = Pipeline(directory, run, SpanOptions(), endpoint, follow=True)
    reader = InMemoryMetricReader()
    metrics = install_metrics(settings_from({}), run=run, pipeline=pipeline, reader=reader)
    assert metrics is not None
    return metrics, reader


def points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    """Data points by metric."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: list(metric.data.data_points)
        for part in data.resource_metrics
        for scope in part.scope_metrics
        for metric in scope.metrics
    }


PROGRAM = """
import os, sys
from pathlib import Path
from otel_gym.capture.writer import RecordWriter
from otel_gym.counters import count
from otel_gym.tracing.process_metrics import ProcessMetricsFile
writer = RecordWriter(Path(sys.argv[1]))
file = ProcessMetricsFile(Path(sys.argv[1]), writer)
count("calls.unprefixed", 3)
count("sampling.overrides", 2, label="temperature")
file.write()
print("ready", flush=True)
sys.stdin.readline()
count("calls.unprefixed", 4)
file.close()
writer.close(5)
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""


def test_a_serving_process_is_counted_by_the_sidecar(captures: Captures) -> None:
    """Counters of another process, with their parts, and its queue appear at the sidecar's meters; they stay when it has ended; no OpenTelemetry is loaded there."""
    count("ids.invalid", 1)
    unprefixed, invalid = counted("calls.unprefixed"), counted("ids.invalid")
    overridden = counted_by_label("sampling.overrides").get("temperature", 0)
    server = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(captures[0])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    metrics, reader = sidecar(captures)
    found = points(reader)
    (point,) = found["otel_gym.calls.unprefixed"]
    assert point.value == unprefixed + 3
    assert found["otel_gym.ids.invalid"][0].value == invalid, "its own counters stay"
    assert overridden + 2 in [
        point.value
        for point in found["otel_gym.sampling.overrides"]
        if point.attributes.get("otel_gym.sampling.parameter") == "temperature"
    ]
    assert {point.attributes["otel_gym.queue.name"] for point in found["otel_gym.queue.bytes"]} == {
        "writer",
        "export",
    }
    assert found["otel_gym.calls.pending"][0].value == 0
    server.communicate("end\n", timeout=60)
    assert server.returncode == 0
    served = metrics._served
    assert served is not None
    served.read()
    for path in (captures[0] / ".otel-gym" / "metrics").iterdir():
        path.unlink()
    served.read()
    (point,) = points(reader)["otel_gym.calls.unprefixed"]
    assert point.value == unprefixed + 7
    assert served.queue("length") is None
    metrics.close()


async def test_a_real_writers_batches_are_distributions_of_the_sidecar(captures: Captures) -> None:
    """Batch sizes and times of a real writer come to the sidecar as values of the same buckets and the same sum."""
    writer = RecordWriter(captures[0])
    seen: list[tuple[int, float, float]] = []
    writer.add_batch_listener(lambda *batch: seen.append(batch))
    file = ProcessMetricsFile(captures[0], writer, interval_s=3600)
    metrics, reader = sidecar(captures)
    file._on_batch(3, 0.004, 0.003)
    file._on_batch(5, 0.0045, 0.001)
    file._on_batch(300, 7.0, 6.0)
    file.write()
    assert metrics._served is not None
    metrics._served.read()
    metrics._served.read()
    file._on_batch(4, 0.003, 0.002)
    file.close()
    metrics._served.read()
    found = points(reader)
    (sizes,) = found["otel_gym.write.batch_size"]
    assert sizes.sum == 312
    assert dict(zip([*sizes.explicit_bounds, None], sizes.bucket_counts, strict=True)) | {
        4.0: 2,
        8.0: 1,
        None: 1,
    } == dict(zip([*sizes.explicit_bounds, None], sizes.bucket_counts, strict=True))
    (times,) = found["otel_gym.write.duration"]
    assert (times.count, times.sum) == (4, pytest.approx(7.0115))
    assert found["otel_gym.fsync.duration"][0].sum == pytest.approx(6.006)
    metrics.close()
    assert writer.close(5)


def test_files_of_earlier_processes_and_odd_files_count_nothing(tmp_path: Path) -> None:
    """What a process of yesterday has left, a torn file and one that holds anything else are passed over."""
    folder = tmp_path / ".otel-gym" / "metrics"
    folder.mkdir(parents=True)
    old = folder / "old.json"
    old.write_bytes(orjson.dumps({"counters": {"calls.unprefixed": 9}}))
    yesterday = time.time() - 86_400
    os.utime(old, (yesterday, yesterday))
    (folder / "torn.json").write_bytes(b'{"counters": {"calls')
    (folder / "list.json").write_bytes(b"[1]")
    names = list(HISTOGRAMS)
    hostile = {
        "counters": {"calls.unprefixed": "many", "ids.invalid": -4, "records.lost": 2},
        "parts": {"sampling.overrides": {"x": None}},
        "queue": {"length": []},
        "histograms": {
            names[0]: [[10**15, 1.0]],
            names[1]: [[None, None]] * 12,
            names[2]: [["x"], 7, *[[0, 0]] * 8],
        },
    }
    (folder / "hostile.json").write_bytes(orjson.dumps(hostile))
    recorded: list[float] = []
    served = ServedMetrics(tmp_path, lambda name, value: recorded.append(value))
    failures = counted("export.failures")
    served.read()
    assert counted("export.failures") == failures + 2
    assert served.counted("calls.unprefixed") == served.counted("ids.invalid") == 0
    assert served.counted("records.lost") == 2
    assert served.counted_by_label("sampling.overrides") == {"x": 0}
    assert served.queue("length") == 0
    assert recorded == []


def test_a_forked_child_tells_only_its_own(tmp_path: Path) -> None:
    """What the parent had counted before a fork is not told twice, and the child has a file of its own."""
    writer = Writer()
    count("calls.unprefixed", 5)
    file = ProcessMetricsFile(tmp_path, writer, interval_s=3600)
    file.write()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            count("calls.unprefixed", 2)
            writer.batch(1, 0.1, 0.1)
            file.write()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    told = sorted(
        orjson.loads(path.read_bytes())["counters"]["calls.unprefixed"]
        for path in (tmp_path / ".otel-gym" / "metrics").glob("*.json")
    )
    assert told == sorted([2, counted("calls.unprefixed")])
    file.close()


def test_a_directory_that_refuses_the_file_is_no_concern(tmp_path: Path) -> None:
    """Where the file cannot be written, that is counted, and serving goes on."""
    (tmp_path / ".otel-gym").write_bytes(b"")
    failures = counted("export.failures")
    file = ProcessMetricsFile(tmp_path, Writer(), interval_s=3600)
    file.write()
    assert counted("export.failures") > failures
    file.close()
