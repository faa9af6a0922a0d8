"""What the writer tells of its batches."""

from __future__ import annotations

from pathlib import Path

from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_gym.capture.writer import RecordWriter
from otel_gym.correlation.run import Run
from otel_gym.settings import settings_from
from otel_gym.tracing.metrics import install_metrics
from tests.capture.calls import finished_call


async def test_each_batch_is_told_with_its_size_and_times(tmp_path: Path) -> None:
    """Records, append time and sync time of every batch reach a listener; a listener that fails harms nobody."""
    writer = RecordWriter(tmp_path)
    told: list[tuple[int, float, float]] = []

    def broken(*_: object) -> None:
        raise RuntimeError("listener")

    writer.add_batch_listener(broken)
    writer.add_batch_listener(lambda *batch: told.append(batch))
    for number in range(3):
        call_id = f"{number:032x}"
        assert (
            await writer.write(finished_call("r", call_id=call_id), writer.begin("r", call_id))
            is not None
        )
    assert writer.close() and writer.waiting_bytes == 0
    assert sum(records for records, _, _ in told) == 3
    assert all(write_s > 0 and sync_s >= 0 for _, write_s, sync_s in told)


async def test_batches_reach_the_metrics(tmp_path: Path) -> None:
    """The write, sync and batch size histograms count what the writer did."""
    writer = RecordWriter(tmp_path)
    reader = InMemoryMetricReader()
    run = Run(schema=1, run_id="r", created_at=0.0, resource={"service.name": "otel-gym"})
    metrics = install_metrics(
        settings_from({}, environment={}), run=run, writer=writer, reader=reader
    )
    assert metrics is not None
    await writer.write(finished_call("r", call_id="a" * 32), writer.begin("r", "a" * 32))
    writer.close()
    data = reader.get_metrics_data()
    assert data is not None
    sums = {
        metric.name: metric.data.data_points[0].sum
        for part in data.resource_metrics
        for scope in part.scope_metrics
        for metric in scope.metrics
        if metric.name
        in ("otel_gym.write.batch_size", "otel_gym.write.duration", "otel_gym.fsync.duration")
    }
    assert sums["otel_gym.write.batch_size"] == 1
    assert sums["otel_gym.write.duration"] > 0 and sums["otel_gym.fsync.duration"] > 0
    metrics.close()
