"""The demo's real traffic through the whole stack: files, traces and metrics agree."""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym import CaptureStore, ModelCallRecord, read_model_call_records
from tests.demo.test_demo import run_demo
from tools.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.slow]

PATIENCE_SECONDS = 90.0


@dataclass
class Demo:
    """The stack, a directory of captures whose spans went through it, and their records."""

    stack: Stack
    directory: Path
    records: list[ModelCallRecord]

    @property
    def model(self) -> str:
        """The model that every call asked for."""
        (model,) = {str(record.request["model"]) for record in self.records}
        return model

    def otel_gym(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The outcome of a command."""
        return subprocess.run(
            [Path(sys.executable).with_name("otel-gym"), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    def value(self, expression: str) -> float:
        """The number that an instant query gives; 0 where there is none."""
        found = self.stack.prometheus.query(expression)
        return float(found[0]["value"][1]) if found else 0.0

    def until(self, expression: str, expected: float) -> None:
        """Wait until an instant query gives a number."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := self.value(expression)) != expected:
            assert time.monotonic() < deadline, f"{expression} is {found}, not {expected}"
            time.sleep(0.25)

    def verify(self) -> None:
        """Compare files and Jaeger; spans may still be in the Collector's queue for a moment."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            done = self.otel_gym(
                "verify", str(self.directory), "--jaeger", self.stack.jaeger.query_url, "--json"
            )
            if done.returncode == 0:
                assert orjson.loads(done.stdout)["spans"] == len(self.records) + 4
                return
            assert time.monotonic() < deadline, done.stdout + done.stderr
            time.sleep(0.5)


@pytest.fixture(scope="module")
def demo(whole_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A demo run that sent to the Collector."""
    directory = tmp_path_factory.mktemp("demo") / "captures"
    done = run_demo(
        *("--rollouts", "4", "--turns", "3", "--capture-dir", str(directory), "--json"),
        *("--otlp-endpoint", whole_stack.collector.otlp_http),
    )
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = orjson.loads(done.stdout)
    store = CaptureStore(directory)
    records = [
        record
        for rollout_id in summary["trace_ids"]
        for record in read_model_call_records(store, rollout_id)
    ]
    assert len(records) == 12
    yield Demo(whole_stack, directory, records)


def test_files_and_jaeger_agree_through_the_collector(demo: Demo) -> None:
    """`verify` finds nothing missing, extra or different with a Collector in between."""
    demo.verify()


def test_metrics_equal_the_sums_over_the_files(demo: Demo) -> None:
    """Calls and every kind of token in Prometheus, from spans and from meters, are the sums over the records."""
    model = f'gen_ai_request_model="{demo.model}"'
    demo.until(f"sum(traces_span_metrics_calls_total{{{model}}})", len(demo.records))
    usage = "gen_ai_client_inference_usage"
    totals = {
        f"{usage}_input_tokens_total": sum(r.tokens_in or 0 for r in demo.records),
        f"{usage}_output_tokens_total": sum(r.tokens_out or 0 for r in demo.records),
        f"{usage}_cache_read_input_tokens_total": sum(r.cached_tokens or 0 for r in demo.records),
        "otel_gym_rollout_calls_total": len(demo.records),
        "otel_gym_rollout_input_tokens_total": sum(r.tokens_in or 0 for r in demo.records),
        "otel_gym_rollout_output_tokens_total": sum(r.tokens_out or 0 for r in demo.records),
        "otel_gym_rollout_cached_tokens_total": sum(r.cached_tokens or 0 for r in demo.records),
    }
    assert all(totals.values())
    for metric, total in totals.items():
        demo.until(f"sum({metric}{{{model}}})", total)


def test_a_second_export_changes_neither_traces_nor_metrics(demo: Demo) -> None:
    """Exporting the same files again through the backfill port leaves Jaeger's view and every count as they were."""
    before = demo.value("sum(traces_span_metrics_calls_total)")
    done = demo.otel_gym(
        "export", str(demo.directory), "--endpoint", demo.stack.collector.backfill_http
    )
    assert done.returncode == 0, done.stderr
    demo.verify()
    sent = 'sum(otelcol_receiver_accepted_spans_total{job="collector",receiver="otlp/backfill"})'
    deadline = time.monotonic() + PATIENCE_SECONDS
    while demo.value(sent) < len(demo.records) and time.monotonic() < deadline:
        time.sleep(0.25)
    assert demo.value(sent) >= len(demo.records)
    assert demo.value("sum(traces_span_metrics_calls_total)") == before


def test_exemplars_of_the_demo_lead_to_its_traces(demo: Demo) -> None:
    """The exemplar of a real call's time to first chunk names a trace and a span that Jaeger has."""
    exemplars = demo.stack.prometheus.exemplars(
        "gen_ai_client_inference_time_to_first_chunk_seconds_bucket"
    )
    model = demo.model
    spans = {
        span["spanID"]
        for exemplar in exemplars
        for trace in [demo.stack.jaeger.trace(exemplar["labels"]["trace_id"])]
        if trace is not None
        for span in trace["spans"]
        if span["operationName"] == f"chat {model}"
    }
    assert spans & {exemplar["labels"]["span_id"] for exemplar in exemplars}
