"""Counters: names are closed, parts add up, and their labels reach the metrics."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_gym.correlation.run import Run
from otel_gym.counters import COUNTERS, count, counted, counted_by_label
from otel_gym.settings import settings_from
from otel_gym.tracing.metrics import install_metrics


def test_an_unknown_name_is_a_programming_error() -> None:
    """A counter that the table lacks cannot be counted, so none can be without its sentence."""
    with pytest.raises(KeyError):
        count("no.such.counter")
    assert all(sentence.endswith(".") for sentence in COUNTERS.values())


def test_overrides_are_counted_by_parameter_and_exported_so() -> None:
    """Parts of a counter add up to its total, and each is a series of the exported metric."""
    total, before = counted("sampling.overrides"), counted_by_label("sampling.overrides")
    count("sampling.overrides", label="temperature")
    count("sampling.overrides", 2, label="top_p")
    assert counted("sampling.overrides") == total + 3
    reader = InMemoryMetricReader()
    run = Run(schema=1, run_id="r", created_at=0.0, resource={"service.name": "otel-gym"})
    metrics = install_metrics(settings_from({}, environment={}), run=run, reader=reader)
    assert metrics is not None
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        str(point.attributes["otel_gym.sampling.parameter"]): point.value
        for part in data.resource_metrics
        for scope in part.scope_metrics
        for metric in scope.metrics
        if metric.name == "otel_gym.sampling.overrides"
        for point in metric.data.data_points
        if point.attributes
    }
    assert points["temperature"] == before.get("temperature", 0) + 1
    assert points["top_p"] == before.get("top_p", 0) + 2
    metrics.close()


def test_a_backend_without_metrics_is_told_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend for traces alone refuses each export of metrics; that is one line in the log, not one an interval."""
    from tests.engines.recording import RecordingEngine, json_script

    monkeypatch.setattr("otel_gym.tracing.metrics._told", set())
    with RecordingEngine() as backend:
        backend.default = json_script({}, status=404)
        settings = settings_from({"otel_gym": {"otlp_endpoint": backend.url}}, environment={})
        run = Run(schema=1, run_id="r", created_at=0.0, resource={"service.name": "otel-gym"})
        metrics = install_metrics(settings, run=run, environment={})
        assert metrics is not None
        for _ in range(3):
            metrics.flush()
        metrics.close()
        assert len(backend.received) >= 3
    told = [record.getMessage() for record in caplog.records if "metrics" in record.getMessage()]
    assert len(told) == 1 and "spans are not affected" in told[0]


def test_a_process_with_metrics_can_fork() -> None:
    """A child forked from a process that exports metrics goes on, as preloading servers need."""
    code = """
import os, sys
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from otel_gym.correlation.run import Run
from otel_gym.settings import settings_from
from otel_gym.tracing.metrics import install_metrics
run = Run(schema=1, run_id="r", created_at=0.0, resource={"service.name": "otel-gym"})
metrics = install_metrics(settings_from({}, environment={}), run=run, reader=InMemoryMetricReader())
child = os.fork()
if child == 0:
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=60)
    assert done.returncode == 7
