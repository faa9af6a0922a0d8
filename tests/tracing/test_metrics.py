"""Metrics of calls and of the bridge, read back through the SDK's own reader and over the wire."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_gym.capture.writer import RecordWriter
from otel_gym.correlation.run import Run
from otel_gym.counters import COUNTERS, count, counted
from otel_gym.settings import Settings, settings_from
from otel_gym.tracing.call_metrics import MAX_LABEL_SETS
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.metrics import Metrics, install_metrics, metric_names
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.pipeline import Pipeline, PipelineLimits
from otel_gym.tracing.semconv import CONVENTIONS
from otel_gym.tracing.semconv_genai import DURATION_BUCKETS, TOKEN_BUCKETS
from otel_gym.tracing.spans import RecordPlace, rollout_span, span_from_record
from tests.tracing.receiver import Receiver
from tests.tracing.records import BASE_TIME, REQUESTS, append, gym_record

PLACE = RecordPlace("3-1", "3-1.capture.jsonl", 0)


def installed(run: Run, *versions: str, **parts: Any) -> tuple[Metrics, InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    settings = settings_from(
        {"otel_gym": {"semconv": list(versions or ("genai-0.1", "genai-1.41"))}}
    )
    metrics = install_metrics(settings, run=run, reader=reader, **parts)
    assert metrics is not None
    return metrics, reader


def read(reader: InMemoryMetricReader) -> dict[str, Any]:
    """Metrics by name; each is the SDK's metric object."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: metric
        for part in data.resource_metrics
        for scope in part.scope_metrics
        for metric in scope.metrics
    }


def call(metrics: Metrics, run: Run, **record: Any) -> None:
    raw = gym_record(**record)
    metrics.calls.on_span(span_from_record(raw, PLACE, run, SpanOptions()), raw)


def test_a_call_is_counted_under_the_new_and_the_old_names(run: Run) -> None:
    """Duration, chunk times and tokens are recorded with the advised buckets, under every chosen convention."""
    metrics, reader = installed(run)
    call(
        metrics,
        run,
        number=1,
        dialect="messages",
        request={**REQUESTS["messages"], "stream": True},
        stream={"chunks": 11, "terminal": "complete"},
        latency_ttft_ms=500.0,
        engine={"provider": "vllm", "address": "h", "port": 8000},
    )
    found = read(reader)
    for name in ("gen_ai.client.inference.duration", "gen_ai.client.operation.duration"):
        (point,) = found[name].data.data_points
        assert point.sum == pytest.approx(1.5)
        assert tuple(point.explicit_bounds) == DURATION_BUCKETS
        assert dict(point.attributes) == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "vllm",
            "gen_ai.request.model": "claude-sonnet-5",
            "gen_ai.response.model": "claude-sonnet-5",
            "server.address": "h",
            "server.port": 8000,
        }
        assert found[name].unit == "s"
    first = found["gen_ai.client.inference.time_to_first_chunk"].data.data_points[0]
    assert first.sum == pytest.approx(0.5)
    each = found["gen_ai.client.inference.time_per_output_chunk"].data.data_points[0]
    assert each.sum == pytest.approx(0.1)
    usage = {
        name: found[f"gen_ai.client.inference.usage.{name}"].data.data_points[0].value
        for name in (
            "input_tokens",
            "output_tokens",
            "cache_read.input_tokens",
            "cache_write.input_tokens",
        )
    }
    assert usage == {
        "input_tokens": 117,
        "output_tokens": 20,
        "cache_read.input_tokens": 100,
        "cache_write.input_tokens": 7,
    }
    tokens = found["gen_ai.client.inference.operation.input_tokens"].data.data_points[0]
    assert tokens.sum == 117
    assert tuple(tokens.explicit_bounds) == TOKEN_BUCKETS
    old = {
        point.attributes["gen_ai.token.type"]: point.sum
        for point in found["gen_ai.client.token.usage"].data.data_points
    }
    assert old == {"input": 117, "output": 20}
    metrics.close()


def test_the_switch_chooses_the_metrics(run: Run) -> None:
    """Under the new convention alone none of the old metrics is made."""
    metrics, reader = installed(run, "genai-0.1")
    call(metrics, run)
    found = read(reader)
    assert "gen_ai.client.inference.duration" in found
    assert not set(CONVENTIONS["genai-1.41"].metrics) & set(found)
    metrics.close()


def test_a_failed_call_has_its_error_type_and_counts_no_tokens(run: Run) -> None:
    """error.type is a label of the duration; usage counters get a 0 of unknown modality, token histograms nothing."""
    metrics, reader = installed(run)
    call(metrics, run, error_category="rate_limit", status_code=429, response=None)
    found = read(reader)
    (point,) = found["gen_ai.client.inference.duration"].data.data_points
    assert point.attributes["error.type"] == "rate_limit"
    (usage,) = found["gen_ai.client.inference.usage.input_tokens"].data.data_points
    assert (usage.value, usage.attributes["gen_ai.token.modality"]) == (0, "unknown")
    assert "error.type" not in usage.attributes
    assert "gen_ai.client.inference.operation.input_tokens" not in found
    metrics.close()


def test_exemplars_lead_to_the_calls_span(run: Run) -> None:
    """An exemplar of a duration carries the trace and span id of the call it was."""
    metrics, reader = installed(run)
    call(metrics, run, number=4)
    (point,) = read(reader)["gen_ai.client.inference.duration"].data.data_points
    (exemplar,) = point.exemplars
    span = span_from_record(gym_record(4), PLACE, run, SpanOptions())
    assert f"{exemplar.trace_id:032x}" == span.trace_id
    assert f"{exemplar.span_id:016x}" == span.span_id
    metrics.close()


def test_a_rollout_has_a_duration(run: Run) -> None:
    """A rollout's root is counted by agent, with its calls, and not as a model call."""
    metrics, reader = installed(run)
    record = {
        "rollout_id": "1-0",
        "started_at": BASE_TIME,
        "completed_at": BASE_TIME + 12,
        "agent": "a",
        "totals": {"model_calls": 7, "tool_calls": 0},
    }
    metrics.calls.on_span(rollout_span(record, run, SpanOptions()), record)
    found = read(reader)
    for measure, calls in (("inference_calls", 7), ("tool_calls", 0)):
        (point,) = found[f"gen_ai.invoke_agent.{measure}"].data.data_points
        assert (point.sum, dict(point.attributes)) == (calls, {"gen_ai.agent.name": "a"})
    (point,) = found["gen_ai.invoke_agent.duration"].data.data_points
    assert point.sum == pytest.approx(12)
    assert point.attributes["gen_ai.agent.name"] == "a"
    assert "gen_ai.client.inference.duration" not in found
    metrics.close()


def test_no_metric_has_an_id_as_a_label(run: Run) -> None:
    """Whatever is counted, no label is a rollout, trace, span, response, session or call id."""
    metrics, reader = installed(run)
    for number, dialect in enumerate(REQUESTS):
        call(metrics, run, number=number, dialect=dialect, client_session_id="s")
    metrics.on_batch(3, 0.01, 0.005)
    labels = {
        key
        for metric in read(reader).values()
        for point in metric.data.data_points
        for key in point.attributes
    }
    assert labels <= {
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.response.model",
        "gen_ai.token.modality",
        "gen_ai.token.type",
        "server.address",
        "server.port",
        "otel_gym.queue.name",
        "otel_gym.sampling.parameter",
    }
    metrics.close()


def test_self_metrics_are_the_counters_and_the_gauges(
    captures: tuple[Path, Run], receiver: Receiver
) -> None:
    """Each counter of the process is a metric; queue, lag and batches are there, under documented names only."""
    directory, run = captures
    pipeline = Pipeline(
        directory,
        run,
        SpanOptions(),
        OtlpEndpoint(f"{receiver.url}/v1/traces"),
        limits=PipelineLimits(interval_s=0.02),
    )
    metrics, reader = installed(run, pipeline=pipeline)
    pipeline.start()
    pipeline.offer(append(directory, "1-0", gym_record(1)))
    assert pipeline.flush(10)
    count("ids.invalid")
    metrics.on_batch(8, 0.002, 0.001)
    found = read(reader)
    for name in COUNTERS:
        points = found[f"otel_gym.{name}"].data.data_points
        assert sum(point.value for point in points) == counted(name)
    assert found["otel_gym.export.lag"].data.data_points[0].value == 0.0
    assert found["otel_gym.queue.length"].data.data_points[0].attributes == {
        "otel_gym.queue.name": "export"
    }
    assert found["otel_gym.write.batch_size"].data.data_points[0].sum == 8
    assert found["otel_gym.fsync.duration"].data.data_points[0].sum == pytest.approx(0.001)
    assert found["gen_ai.client.inference.duration"].data.data_points[0].count == 1
    assert set(found) <= set(metric_names(("genai-0.1", "genai-1.41")))
    pipeline.close(5)
    metrics.close()


def test_a_restart_does_not_count_again(captures: tuple[Path, Run], receiver: Receiver) -> None:
    """A record is a metric once: what another process left over is exported, and not counted a second time."""
    directory, run = captures
    for number in range(5):
        append(directory, "1-0", gym_record(number))
    endpoint = OtlpEndpoint(f"{receiver.url}/v1/traces")
    pipeline = Pipeline(directory, run, SpanOptions(), endpoint)
    metrics, reader = installed(run, pipeline=pipeline)
    pipeline.start()
    assert pipeline.flush(10)
    assert pipeline.exported == 5
    assert "gen_ai.client.inference.duration" not in read(reader)
    pipeline.close(5)
    metrics.close()


@pytest.mark.parametrize(
    ("raw", "environment", "url"),
    [
        ({}, {}, None),
        ({"otel_gym": {"otlp_endpoint": "http://a:4318"}}, {}, "http://a:4318/v1/metrics"),
        ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b:4318"}, "http://b:4318/v1/metrics"),
        ({}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x"}, None),
        (
            {},
            {
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://b:4318",
            },
            "http://b:4318/v1/metrics",
        ),
        (
            {"otel_gym": {"otlp_endpoint": "http://a:4318"}},
            {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m/y"},
            "http://m/y",
        ),
        (
            {"otel_gym": {"otlp_endpoint": "http://a:4318"}},
            {"OTEL_METRICS_EXPORTER": "none"},
            None,
        ),
    ],
)
def test_where_metrics_go(
    run: Run,
    raw: dict[str, Any],
    environment: dict[str, str],
    url: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The standard variables and the setting decide the metrics endpoint; a traces-only endpoint gets no metrics."""
    from otel_gym.tracing import metrics as module

    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    settings: Settings = settings_from(raw, environment=environment)
    exporter: Any = module._exporter(settings, environment)
    assert (None if exporter is None else exporter._endpoint) == url
    if exporter is not None:
        exporter.shutdown()


def test_no_sdk_is_loaded_before_it_is_needed() -> None:
    """Importing the tracing room's entry points loads neither the OpenTelemetry SDK nor an exporter nor gRPC."""
    program = (
        "import sys; import otel_gym.tracing.pipeline, otel_gym.tracing.metrics, otel_gym.tracing.context;"
        "bad = [m for m in sys.modules if m.startswith(('opentelemetry.sdk', 'opentelemetry.exporter', 'grpc'))];"
        "print(bad); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_a_real_writer_is_observed(captures: tuple[Path, Run]) -> None:
    """The writer's queue and its unsettled claims are gauges of the serving process."""
    directory, run = captures
    writer = RecordWriter(directory)
    metrics, reader = installed(run, writer=writer)
    claim = writer.begin("1-0", "a" * 32)
    found = read(reader)
    assert found["otel_gym.calls.pending"].data.data_points[0].value == 1
    (queue,) = found["otel_gym.queue.length"].data.data_points
    assert (queue.value, queue.attributes) == (0, {"otel_gym.queue.name": "writer"})
    writer.release(claim)
    assert read(reader)["otel_gym.calls.pending"].data.data_points[0].value == 0
    metrics.close()
    assert writer.close(5)


def test_tokens_are_counted_by_modality(run: Run) -> None:
    """What a provider breaks down is counted by modality, the rest as unknown, and the sum is the total."""
    metrics, reader = installed(run, "genai-0.1")
    usage = {
        "prompt_tokens": 300,
        "completion_tokens": 9,
        "prompt_tokens_details": {
            "cached_tokens": 40,
            "text_tokens": 100,
            "image_tokens": 150,
            "cached_tokens_details": {"text_tokens": 40},
        },
        "completion_tokens_details": {"audio_tokens": 5},
    }
    call(metrics, run, response={"usage": usage})
    found = read(reader)
    assert {
        measure: {
            point.attributes["gen_ai.token.modality"]: point.value
            for point in found[f"gen_ai.client.inference.usage.{measure}"].data.data_points
        }
        for measure in ("input_tokens", "output_tokens", "cache_read.input_tokens")
    } == {
        "input_tokens": {"text": 100, "image": 150, "unknown": 50},
        "output_tokens": {"audio": 5, "unknown": 4},
        "cache_read.input_tokens": {"text": 40, "unknown": 0},
    }
    metrics.close()


def test_made_up_model_names_do_not_make_endless_series(run: Run) -> None:
    """Callers choose model names; past a bound the others share one series, and no token is lost."""
    metrics, reader = installed(run, "genai-0.1")
    for number in range(MAX_LABEL_SETS + 50):
        call(metrics, run, request={"model": f"made-up-{number}"})
    points = read(reader)["gen_ai.client.inference.usage.input_tokens"].data.data_points
    assert len(points) == MAX_LABEL_SETS + 1
    assert sum(point.value for point in points) == 120 * (MAX_LABEL_SETS + 50)
    (rest,) = [p for p in points if p.attributes["gen_ai.request.model"] == "_OTHER"]
    assert rest.value == 120 * 50
    metrics.close()
