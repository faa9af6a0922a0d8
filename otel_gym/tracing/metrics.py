"""Metrics of model calls and of the bridge itself: OpenTelemetry meters over the official OTLP metric exporter.

A call is counted once, when its span is made for the first time: by the live pipeline, or by the sidecar. Export from files counts nothing. Names follow
the same table switch as spans (`otel_gym.semconv`). Rollout ids, response ids and the like are never a label. Reference: `docs/metrics.md`.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from otel_gym.capture.layout import Layout
from otel_gym.capture.pending import pending_calls
from otel_gym.correlation.run import Run
from otel_gym.counters import COUNTERS, counted, counted_by_label
from otel_gym.tracing.call_metrics import CallMetrics
from otel_gym.tracing.process_metrics import HISTOGRAMS
from otel_gym.tracing.semconv import SCOPE_NAME, naming
from otel_gym.tracing.served_metrics import ServedMetrics, served_counter

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader

    from otel_gym.capture.writer import RecordWriter
    from otel_gym.settings import Settings
    from otel_gym.tracing.pipeline import Pipeline

EXPORT_INTERVAL_MS: Final = 10_000.0
"""Between two metric exports, where OTEL_METRIC_EXPORT_INTERVAL does not say otherwise."""

GAUGES: Final[Mapping[str, tuple[str, str]]] = {
    "otel_gym.queue.length": ("{record}", "Records that wait, by `otel_gym.queue.name`."),
    "otel_gym.queue.bytes": ("By", "Bytes that wait, by `otel_gym.queue.name`."),
    "otel_gym.export.lag": ("s", "Age of the oldest record that waits to be exported."),
    "otel_gym.calls.pending": ("{call}", "Calls that have begun and are not recorded yet."),
}
"""Observed values: unit and meaning."""


class Metrics:
    """The meters of one process."""

    def __init__(
        self,
        provider: MeterProvider,
        versions: tuple[str, ...],
        *,
        writer: RecordWriter | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        self._provider = provider
        self._writer = writer
        self._pipeline = pipeline
        self._served: ServedMetrics | None = None
        meter = provider.get_meter(SCOPE_NAME, _version(), schema_url=naming(versions).schema_url)
        self.calls = CallMetrics(meter, versions)
        self._install_self_metrics(meter)
        if pipeline is not None:
            pipeline.on_span = self.calls.on_span
        if (listen := getattr(writer, "add_batch_listener", None)) is not None:
            listen(self.on_batch)
        if writer is None and pipeline is not None and pipeline.follows:
            # A sidecar speaks for the serving processes too, which export nothing themselves.
            self._served = ServedMetrics(pipeline.directory, self._record).start()

    def on_batch(self, records: int, write_s: float, fsync_s: float) -> None:
        """Counts one batch of a writer."""
        self._record("otel_gym.write.batch_size", records)
        self._record("otel_gym.write.duration", write_s)
        self._record("otel_gym.fsync.duration", fsync_s)

    def _record(self, name: str, value: float) -> None:
        self._histograms[name].record(value)

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Exports what was counted so far; whether that worked."""
        return self._provider.force_flush(int(timeout_s * 1000))

    def close(self, timeout_s: float = 5.0) -> None:
        """Exports for the last time, within `timeout_s`."""
        if self._pipeline is not None:
            self._pipeline.on_span = None
        if self._served is not None:
            self._served.close()
        self._provider.shutdown(timeout_millis=timeout_s * 1000)

    def _install_self_metrics(self, meter: Meter) -> None:
        from opentelemetry.metrics import Observation

        def counter(name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
            def observe(options: CallbackOptions) -> Iterable[Observation]:
                value, parts = served_counter(
                    self._served, name, counted(name), counted_by_label(name)
                )
                if not parts:
                    return [Observation(value)]
                return [
                    Observation(value, {"otel_gym.sampling.parameter": label})
                    for label, value in parts.items()
                ]

            return observe

        for name, meaning in COUNTERS.items():
            meter.create_observable_counter(
                f"otel_gym.{name}", [counter(name)], description=meaning
            )
        observers: dict[str, Callable[[], list[tuple[float, dict[str, str]]]]] = {
            "otel_gym.queue.length": self._queue_lengths,
            "otel_gym.queue.bytes": self._queue_bytes,
            "otel_gym.export.lag": self._lag,
            "otel_gym.calls.pending": self._pending,
        }

        def gauge(
            observe: Callable[[], list[tuple[float, dict[str, str]]]],
        ) -> Callable[[CallbackOptions], Iterable[Observation]]:
            return lambda options: [Observation(value, labels) for value, labels in observe()]

        for name, (unit, meaning) in GAUGES.items():
            meter.create_observable_gauge(name, [gauge(observers[name])], unit, meaning)
        self._histograms = {
            name: meter.create_histogram(
                name, unit, meaning, explicit_bucket_boundaries_advisory=list(buckets)
            )
            for name, (unit, meaning, buckets) in HISTOGRAMS.items()
        }

    def _queue_lengths(self) -> list[tuple[float, dict[str, str]]]:
        found: list[tuple[float, dict[str, str]]] = []
        if self._writer is not None:
            found.append((self._writer.waiting, {"otel_gym.queue.name": "writer"}))
        elif self._served is not None and (waiting := self._served.queue("length")) is not None:
            found.append((waiting, {"otel_gym.queue.name": "writer"}))
        if self._pipeline is not None:
            found.append((self._pipeline.queue_length, {"otel_gym.queue.name": "export"}))
        return found

    def _queue_bytes(self) -> list[tuple[float, dict[str, str]]]:
        found: list[tuple[float, dict[str, str]]] = []
        waiting = (
            getattr(self._writer, "waiting_bytes", None)
            if self._served is None
            else self._served.queue("bytes")
        )
        if waiting is not None:
            found.append((waiting, {"otel_gym.queue.name": "writer"}))
        if self._pipeline is not None:
            found.append((self._pipeline.queue_bytes, {"otel_gym.queue.name": "export"}))
        return found

    def _lag(self) -> list[tuple[float, dict[str, str]]]:
        return [] if self._pipeline is None else [(self._pipeline.lag_s, {})]

    def _pending(self) -> list[tuple[float, dict[str, str]]]:
        if self._writer is not None:
            return [(len(self._writer.store.pending()), {})]
        if self._served is not None and self._pipeline is not None:
            return [(len(pending_calls(Layout(self._pipeline.directory))), {})]
        return []


def install_metrics(
    settings: Settings,
    *,
    run: Run,
    writer: RecordWriter | None = None,
    pipeline: Pipeline | None = None,
    reader: MetricReader | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Metrics | None:
    """The meters that `settings` ask for, exporting until they are closed; null where there is nowhere to send them.

    They hang on a provider of their own: an application's global meter provider is left alone. `reader` replaces the periodic export.
    """
    if reader is None:
        exporter = _exporter(settings, environment)
        if exporter is None:
            return None
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        interval = None if "OTEL_METRIC_EXPORT_INTERVAL" in environment else EXPORT_INTERVAL_MS
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=interval)
    # First of all: the provider's own handler of forks starts a thread pool, and a child in which that module's handler comes later waits for ever.
    import concurrent.futures.thread  # noqa: F401 - for its handler of forks

    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    resource = Resource(
        {**run.resource, "otel_gym.run.id": run.run_id, "service.instance.id": uuid.uuid4().hex}
    )
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    return Metrics(provider, tuple(settings.otel_gym.semconv), writer=writer, pipeline=pipeline)


def _exporter(settings: Settings, environment: Mapping[str, str]) -> MetricExporter | None:
    """The official exporter; it reads headers, compression, certificates and timeout from the standard variables itself."""
    if environment.get("OTEL_METRICS_EXPORTER", "").strip().lower() == "none":
        return None
    own = environment.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "").strip()
    base = settings.otlp_endpoint
    if base == environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        # That URL is for traces alone.
        base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or settings.otel_gym.otlp_endpoint
    if settings.otlp_endpoint is None or not (own or base):
        return None
    protocol = (
        environment.get("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL")
        or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    ).strip()
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
            OTLPMetricExporter as GrpcExporter,
        )

        return GrpcExporter(endpoint=own or base)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    logging.getLogger(OTLPMetricExporter.__module__).addFilter(_once_per_cause)
    return OTLPMetricExporter(endpoint=own or f"{str(base).rstrip('/')}/v1/metrics")


_told: set[str] = set()


def _once_per_cause(record: logging.LogRecord) -> bool:
    """Lets a failure of the official exporter be logged once: a backend for traces alone, such as Jaeger, would be complained of at every interval."""
    message = record.getMessage()
    if message in _told:
        return False
    _told.add(message)
    if "code: 404" in message:
        record.msg = "the backend takes no metrics (404); spans are not affected, OTEL_METRICS_EXPORTER=none ends this"
        record.args = ()
    return True


def _version() -> str:
    from otel_gym.tracing.encode import scope_version

    return scope_version()


def metric_names(versions: Iterable[str]) -> dict[str, Any]:
    """Every metric that a process under `versions` can export, with its unit."""
    from otel_gym.tracing.semconv import CONVENTIONS

    names: dict[str, Any] = {}
    for version in versions:
        names.update({name: each.unit for name, each in CONVENTIONS[version].metrics.items()})
    names.update({name: unit for name, (unit, _) in GAUGES.items()})
    names.update({name: unit for name, (unit, _, _) in HISTOGRAMS.items()})
    names.update({f"otel_gym.{name}": "" for name in COUNTERS})
    return names
