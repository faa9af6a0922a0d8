"""What a span costs, and how fast files become spans, with the official SDK path beside it in the same run.

    python benchmarks/tracing.py [--quick] [--json]

- request path: one `Pipeline.offer` of a record that was just written, the worker exporting at the same time (claim: under 10 us);
- encode: record to span and span to OTLP bytes, each by itself (claim: encoding at most 30 us), beside the official encoder;
- backfill: files of 4 KB records to a local receiver, this process on one core, the receiver on another, per second of processor time (claim: at least 12,000 spans/s and at least
  2.5 times the official path, which starts and ends SDK spans with the same attributes and gives batches of 512 to the official exporter);
- event loop: p99 lag of a loop that makes 1,000 calls a second, exporting in the process, leaving it to a sidecar, and through the SDK's
  BatchSpanProcessor, less what the loop has without any export.

Exit code 1 where a claim is missed. The rates are those of this machine and of what else it does; the ratios are what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    set_span_in_context,
)

from otel_gym.capture.written import Written
from otel_gym.correlation.run import Run, open_run
from otel_gym.tracing.backfill import export_rollouts
from otel_gym.tracing.encode import encode_span
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.files import capture_files, open_capture, read_lines
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.pipeline import Pipeline
from otel_gym.tracing.sinks import EndpointSink
from otel_gym.tracing.span_data import SpanData
from otel_gym.tracing.spans import RecordPlace, span_from_record

OPTIONS = SpanOptions()
RECORD_BYTES = 4096
BATCH = 512


def record(number: int) -> dict[str, Any]:
    """A chat call with everything that our own server writes, 4 KB as a line."""
    made: dict[str, Any] = {
        "model_call_id": f"{number + 1:016x}{number:016x}",
        "dialect": "chat",
        "model_ref": {"type": "responses_api_models", "name": "policy"},
        "started_at": 1_790_000_000.0 + number / 100,
        "completed_at": 1_790_000_001.5 + number / 100,
        "latency_ms": 1500.0,
        "latency_ttft_ms": 90.25,
        "status_code": 200,
        "error_category": None,
        "request": {
            "model": "qwen3-8b",
            "messages": [{"role": "user", "content": ""}],
            "temperature": 0.7,
            "top_p": 0.95,
            "max_tokens": 512,
            "stream": True,
        },
        "response": {
            "id": f"chatcmpl-{number}",
            "model": "qwen3-8b",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "An answer."},
                }
            ],
            "usage": {
                "prompt_tokens": 120,
                "completion_tokens": 30,
                "total_tokens": 150,
                "prompt_tokens_details": {"cached_tokens": 64},
            },
        },
        "schema": 1,
        "rollout_id": f"{number % 64}-0",
        "engine": {"provider": "vllm", "address": "127.0.0.1", "port": 8000},
        "stream": {"chunks": 31, "terminal": "complete"},
    }
    missing = RECORD_BYTES - len(orjson.dumps(made)) - 1
    made["request"]["messages"][0]["content"] = "x" * max(0, missing)
    return made


def append(directory: Path, made: dict[str, Any], offsets: dict[str, int]) -> Written:
    """Appends without syncing, which is not what is measured here."""
    rollout_id = made["rollout_id"]
    path = directory / f"{rollout_id}.capture.jsonl"
    line = orjson.dumps(made) + b"\n"
    with path.open("ab") as file:
        file.write(line)
    offset = offsets.get(rollout_id, 0)
    offsets[rollout_id] = offset + len(line)
    return Written(rollout_id, made, path, offset, len(line))


@contextlib.contextmanager
def receiver(core: int | None) -> Iterator[str]:
    """A receiver in a process of its own, on a core of its own where there is one."""
    script = Path(__file__).with_name("tracing_receiver.py")
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1/traces"
    finally:
        process.kill()
        process.wait()


def best_us(action: Callable[[], object], rounds: int, repeat: int) -> float:
    """Microseconds of one `action`: the best of several rounds."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(repeat):
            action()
        times.append((time.perf_counter() - started) / repeat)
    return min(times) * 1e6


class Official:
    """The official path: SDK spans with explicit times and ids, and the official exporter."""

    def __init__(self, run: Run, processor: SpanProcessor) -> None:
        self.provider = TracerProvider(
            resource=Resource(dict(run.resource)), shutdown_on_exit=False
        )
        self.provider.add_span_processor(processor)
        self._tracer = self.provider.get_tracer("otel_gym", "0")

    def span(self, span: SpanData) -> None:
        """Starts and ends one span with our attributes."""
        parent = SpanContext(
            int(span.trace_id, 16), int(span.parent_span_id, 16), True, TraceFlags(1)
        )
        self._tracer.start_span(
            span.name,
            context=set_span_in_context(NonRecordingSpan(parent), Context()),
            kind=SpanKind.CLIENT,
            attributes=span.attributes,
            start_time=span.start_ns,
        ).end(end_time=span.end_ns)


class Collecting(SpanProcessor):
    """Gives batches to an exporter as they fill, in the caller's thread: nothing is dropped and nothing waits."""

    def __init__(self, exporter: OTLPSpanExporter | None) -> None:
        self._exporter = exporter
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)
        if self._exporter is not None and len(self.spans) >= BATCH:
            self._exporter.export(self.spans)
            self.spans = []

    def flush(self) -> None:
        if self._exporter is not None and self.spans:
            self._exporter.export(self.spans)
            self.spans = []


def measure_encode(run: Run, quick: bool) -> dict[str, float]:
    """Cost of each step, in microseconds."""
    raw = record(1)
    place = RecordPlace("1-0", "1-0.capture.jsonl", 4096)
    span = span_from_record(raw, place, run, OPTIONS)
    collecting = Collecting(None)
    Official(run, collecting).span(span)
    (readable,) = collecting.spans
    rounds, repeat = (100, 40) if quick else (600, 40)
    return {
        "record_to_span_us": best_us(
            lambda: span_from_record(raw, place, run, OPTIONS), rounds, repeat
        ),
        "encode_us": best_us(lambda: encode_span(span), rounds, repeat),
        "official_encode_us": best_us(
            lambda: encode_spans([readable]).SerializeToString(), rounds, repeat // 4
        ),
        "span_bytes": float(len(encode_span(span))),
    }


def measure_offer(directory: Path, run: Run, url: str, count: int) -> dict[str, float]:
    """Cost of an offer while the worker exports, in microseconds."""
    directory.mkdir()
    pipeline = Pipeline(directory, run, OPTIONS, OtlpEndpoint(url)).start()
    offsets: dict[str, int] = {}
    costs = []
    for number in range(count):
        written = append(directory, record(number), offsets)
        started = time.perf_counter()
        pipeline.offer(written)
        costs.append((time.perf_counter() - started) * 1e6)
    pipeline.close(60)
    costs.sort()
    return {
        "offer_us_median": statistics.median(costs),
        "offer_us_p99": costs[int(len(costs) * 0.99)],
        "exported": float(pipeline.exported),
    }


def measure_backfill(directory: Path, run: Run, url: str, count: int) -> dict[str, float]:
    """Spans a second from files, ours and the official path, in turns."""
    directory.mkdir()
    offsets: dict[str, int] = {}
    for number in range(count):
        append(directory, record(number), offsets)
    rollouts = [rollout_id for rollout_id, _ in capture_files(directory)]

    def ours() -> None:
        sink = EndpointSink(directory, run, OPTIONS, OtlpEndpoint(url))
        export_rollouts(directory, rollouts, run, OPTIONS, sink)

    def official() -> None:
        collecting = Collecting(OTLPSpanExporter(endpoint=url))
        path = Official(run, collecting)
        for rollout_id in rollouts:
            file = open_capture(directory, rollout_id)
            assert file is not None
            with file:
                for line in read_lines(file):
                    assert line.record is not None
                    place = RecordPlace(
                        rollout_id, f"{rollout_id}.capture.jsonl", line.offset_bytes
                    )
                    path.span(span_from_record(line.record, place, run, OPTIONS))
        collecting.flush()

    def rate(action: Callable[[], None]) -> float:
        """Spans a second of processor time: what the core would make if it did nothing else."""
        started = time.process_time()
        action()
        return count / (time.process_time() - started)

    ours_rates, official_rates = [], []
    for _ in range(3):
        ours_rates.append(rate(ours))
        official_rates.append(rate(official))
    return {
        "backfill_spans_per_s": max(ours_rates),
        "official_spans_per_s": max(official_rates),
        "backfill_ratio": max(ours_rates) / max(official_rates),
    }


async def loop_lag(per_call: Callable[[int], None], seconds: float) -> dict[str, float]:
    """Lag of an event loop at 1,000 calls a second, in milliseconds: how late a 1 ms sleep returns."""
    lags: list[float] = []
    number = 0
    started = time.perf_counter()
    while (now := time.perf_counter()) - started < seconds:
        while number < (now - started) * 1000:
            per_call(number)
            number += 1
        asked = time.perf_counter()
        await asyncio.sleep(0.001)
        lags.append((time.perf_counter() - asked - 0.001) * 1000)
    lags.sort()
    return {"p50": lags[len(lags) // 2], "p99": lags[int(len(lags) * 0.99)], "max": lags[-1]}


def measure_loop(directory: Path, run: Run, url: str, seconds: float) -> dict[str, float]:
    """p99 lag without export, with ours, with a sidecar and with the SDK, in milliseconds."""
    made = [record(number) for number in range(512)]
    found: dict[str, float] = {}
    for kind in ("none", "in_process", "sidecar", "official"):
        home = directory / kind
        home.mkdir(parents=True)
        open_run(home, run_id=run.run_id, resource=run.resource)
        offsets: dict[str, int] = {}
        pipeline: Pipeline | None = None
        sidecar: subprocess.Popen[bytes] | None = None
        official: Official | None = None
        if kind == "in_process":
            pipeline = Pipeline(home, run, OPTIONS, OtlpEndpoint(url)).start()
        elif kind == "sidecar":
            program = "from otel_gym.cli.main import main; main()"
            sidecar = subprocess.Popen(
                [sys.executable, "-c", program, "export", str(home), "--follow", "--endpoint", url],
                env={**os.environ, "OTEL_METRICS_EXPORTER": "none"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(2)
        elif kind == "official":
            official = Official(run, BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))

        def per_call(
            number: int,
            home: Path = home,
            offsets: dict[str, int] = offsets,
            pipeline: Pipeline | None = pipeline,
            official: Official | None = official,
        ) -> None:
            raw = made[number % len(made)]
            written = append(home, raw, offsets)
            if pipeline is not None:
                pipeline.offer(written)
            elif official is not None:
                place = RecordPlace(written.rollout_id, written.path.name, written.offset_bytes)
                official.span(span_from_record(raw, place, run, OPTIONS))

        lag = asyncio.run(loop_lag(per_call, seconds))
        found[f"lag_{kind}_p99_ms"] = lag["p99"]
        found[f"lag_{kind}_p50_ms"] = lag["p50"]
        if pipeline is not None:
            pipeline.close(30)
        if sidecar is not None:
            sidecar.terminate()
            sidecar.wait()
        if official is not None:
            official.provider.shutdown()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    quick = arguments.quick
    run = Run(schema=1, run_id="benchmark", created_at=1.0, resource={"service.name": "otel-gym"})
    cores = sorted(os.sched_getaffinity(0))
    figures: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory() as scratch,
        receiver(cores[1] if len(cores) > 1 else None) as url,
    ):
        root = Path(scratch)
        figures |= measure_loop(root / "loop", run, url, 3.0 if quick else 8.0)
        os.sched_setaffinity(0, {cores[0]})
        figures |= measure_encode(run, quick)
        figures |= measure_offer(root / "offer", run, url, 3000 if quick else 20_000)
        figures |= measure_backfill(root / "backfill", run, url, 4000 if quick else 40_000)
        os.sched_setaffinity(0, set(cores))
    claims = {
        "request path under 10 us": figures["offer_us_median"] < 10,
        "encode at most 30 us": figures["encode_us"] <= 30,
        "backfill at least 12,000 spans/s": figures["backfill_spans_per_s"] >= 12_000,
        "backfill at least 2.5x the official path": figures["backfill_ratio"] >= 2.5,
    }
    if arguments.json:
        print(json.dumps({**figures, "claims": claims}))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:12,.2f}")
        for claim, is_met in claims.items():
            print(f"{'met' if is_met else 'MISSED':7} {claim}")
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
