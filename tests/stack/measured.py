"""The metrics that otel-gym's meters send, with known values and through the real SDK and OTLP exporter."""

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from otel_gym import counters
from tests.stack.traffic import MODELS, Sent

USAGE = {
    "input_tokens": 100,
    "output_tokens": 10,
    "cache_read.input_tokens": 60,
    "cache_write.input_tokens": 1,
    "reasoning.output_tokens": 2,
}
"""What one call adds to each counter `gen_ai.client.inference.usage.*`."""

COUNTERS = tuple(f"otel_gym.{name}" for name in counters.COUNTERS)
HISTOGRAMS = {
    "otel_gym.write.duration": "s",
    "otel_gym.fsync.duration": "s",
    "otel_gym.write.batch_size": "{record}",
}
GAUGES = {
    "otel_gym.queue.length": "{record}",
    "otel_gym.queue.bytes": "By",
    "otel_gym.export.lag": "s",
    "otel_gym.calls.pending": "{call}",
}


class Measured:
    """A process that measures: ``calls`` records what one wave of calls adds, ``flush`` sends it."""

    def __init__(self, otlp_http: str) -> None:
        self._provider = MeterProvider(
            [
                PeriodicExportingMetricReader(
                    OTLPMetricExporter(endpoint=f"{otlp_http}/v1/metrics"),
                    export_interval_millis=3_600_000,
                )
            ],
            Resource({"service.name": "otel-gym", "service.instance.id": "test"}),
        )
        meter = self._provider.get_meter("otel_gym")
        prefix = "gen_ai.client.inference"
        self._usage = {
            name: meter.create_counter(f"{prefix}.usage.{name}", "{token}") for name in USAGE
        }
        self._duration = meter.create_histogram(f"{prefix}.duration", "s")
        self._first_chunk = meter.create_histogram(f"{prefix}.time_to_first_chunk", "s")
        self._counters = [meter.create_counter(name) for name in COUNTERS]
        self._histograms = [meter.create_histogram(name, unit) for name, unit in HISTOGRAMS.items()]
        self._gauges = [meter.create_gauge(name, unit) for name, unit in GAUGES.items()]
        self.totals = dict.fromkeys(USAGE, 0)

    def calls(self, count: int, sent: Sent) -> None:
        """Measure ``count`` calls, whose exemplars lead to traces in ``sent``."""
        traces = sorted(sent.spans)
        for index in range(count):
            trace_id = traces[index % len(traces)]
            span_id = min(sent.spans[trace_id])
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "llama_cpp",
                "gen_ai.request.model": MODELS[index % 2],
                "server.address": "127.0.0.1",
            }
            for name, value in USAGE.items():
                self._usage[name].add(value, {**attributes, "gen_ai.token.modality": "text"})
                self.totals[name] += value
            self._in_span(self._duration, 0.05, attributes, trace_id, span_id)
            self._in_span(self._first_chunk, 0.01, attributes, trace_id, span_id)
            for counter in self._counters:
                counter.add(1)
            for histogram in self._histograms:
                histogram.record(0.001)
            for gauge in self._gauges:
                gauge.set(1, {"otel_gym.queue.name": "export"})

    def flush(self) -> None:
        """Send what was measured so far."""
        assert self._provider.force_flush()

    def close(self) -> None:
        """End the process's meters."""
        self._provider.shutdown()

    @staticmethod
    def _in_span(
        histogram: Histogram, value: float, attributes: dict[str, str], trace_id: str, span_id: str
    ) -> None:
        context = SpanContext(int(trace_id, 16), int(span_id, 16), False, TraceFlags(1))
        with trace.use_span(NonRecordingSpan(context)):
            histogram.record(value, attributes)
