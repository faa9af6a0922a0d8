"""The main job with a real Jaeger: every line of every file is one span, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym.capture.record import build_model_call_record
from otel_gym.correlation import trace_ids
from tests.demo.test_demo import run_demo

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.fixture(scope="module")
def demo(
    jaeger: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A demo run whose spans went to Jaeger: its directory and its summary."""
    directory = tmp_path_factory.mktemp("demo") / "captures"
    done = run_demo(
        "--rollouts", "6", "--turns", "2", "--capture-dir", str(directory), "--otlp-endpoint", jaeger.otlp_http, "--json"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    yield directory, orjson.loads(done.stdout)


def _tags(span: dict[str, Any]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in span["tags"]}


def test_every_line_is_one_span_of_its_rollouts_trace(
    jaeger: Any, demo: tuple[Path, dict[str, Any]]
) -> None:
    """Under the trace id computed from run.json and the file name: exactly one span a line with the record's own times and figures, and one root."""
    directory, summary = demo
    run_id = orjson.loads((directory / "run.json").read_bytes())["run_id"]
    files = sorted(directory.glob("*.capture.jsonl"))
    assert len(files) == 6 and summary["spans_exported"] == 12 + 6
    for file in files:
        rollout_id = file.name.removesuffix(".capture.jsonl")
        trace_id = trace_ids.trace_id(run_id, rollout_id)
        assert summary["trace_ids"][rollout_id] == trace_id
        trace = jaeger.trace(trace_id)
        spans = {span["spanID"]: span for span in trace["spans"]}
        records = [
            build_model_call_record(orjson.loads(line), i)
            for i, line in enumerate(file.read_bytes().splitlines())
        ]
        root_id = trace_ids.root_span_id(run_id, rollout_id)
        assert set(spans) == {root_id} | {
            trace_ids.span_id(str(record.model_call_id)) for record in records
        }
        assert len(trace["spans"]) == len(records) + 1
        assert [span["spanID"] for span in trace["spans"] if not span["references"]] == [root_id]
        assert not any(span.get("warnings") for span in trace["spans"]), (
            "Jaeger had to repair something"
        )
        for record in records:
            span = spans[trace_ids.span_id(str(record.model_call_id))]
            tags = _tags(span)
            assert span["references"][0]["spanID"] == root_id
            assert record.started_at is not None and record.completed_at is not None
            assert abs(span["startTime"] - record.started_at * 1e6) <= 1
            assert abs(span["duration"] - (record.completed_at - record.started_at) * 1e6) <= 2
            assert tags["gen_ai.usage.input_tokens"] == record.tokens_in
            assert tags["gen_ai.usage.output_tokens"] == record.tokens_out
            assert tags.get("gen_ai.usage.cache_read.input_tokens") == (
                record.cached_tokens or None
            )
            assert tags["gen_ai.response.model"] == record.model
            assert record.finish_reason in str(tags["gen_ai.response.finish_reasons"])
            assert tags["otel_gym.model_call.id"] == record.model_call_id
            assert tags["otel_gym.rollout.id"] == rollout_id and tags["otel_gym.run.id"] == run_id
            assert "error.type" not in tags and record.error_category is None
            assert (tags.get("gen_ai.request.stream") is True) == (
                record.stream_terminal is not None
            )
