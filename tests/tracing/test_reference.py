"""Captures that NeMo Gym itself wrote become the same traces as ours."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_gym.cli.main import run as run_command
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from tests.tracing.receiver import Receiver
from tests.tracing.records import RESPONSES, append, gym_record

SCRIPT = Path(__file__).with_name("reference_captures.py")
ROLLOUTS = ("0-0", "0-0-a1", "1-0")


@pytest.fixture(params=["by its format page", "by the reference"])
def captures(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Nine calls of three rollouts; by the reference where --reference-python (or OTEL_GYM_REFERENCE_PYTHON) names its Python."""
    if request.param == "by the reference":
        python = request.config.getoption("--reference-python", default=None) or os.environ.get(
            "OTEL_GYM_REFERENCE_PYTHON"
        )
        if not python:
            pytest.skip("OTEL_GYM_REFERENCE_PYTHON names no Python with nemo-gym 0.7.0")
        subprocess.run([python, str(SCRIPT), str(tmp_path)], check=True, capture_output=True)
        return tmp_path
    error = {"error": {"message": "slow down", "type": "rate_limit"}}
    for index, rollout in enumerate(ROLLOUTS):
        said = [{"role": "user", "content": "Hi"}]
        for number, (dialect, changes) in enumerate(
            [
                ("chat", {"response": {**RESPONSES["chat"], "model": "m"}}),
                (
                    "messages",
                    {
                        "request": {"model": "m", "stream": True, "messages": said},
                        "response_raw": "event: message_start\n",
                    },
                ),
                (
                    "responses",
                    {"status_code": 429, "error_category": "rate_limit", "response": error},
                ),
            ]
        ):
            changes = {"request": {"model": "m"}, "client_session_id": "s-1", **changes}
            append(tmp_path, rollout, gym_record(index * 3 + number, dialect, **changes))
    return tmp_path


def attributes(span: Span) -> dict[str, Any]:
    return {pair.key: pair.value for pair in span.attributes}


def test_a_trace_a_rollout_a_span_a_line(captures: Path, receiver: Receiver) -> None:
    """Each rollout is a trace with a root; each line is a span below it with the line's own times, tokens and outcome."""
    assert run_command(["export", str(captures), "--endpoint", receiver.url, "--run-id", "r"]) == 0
    spans = {span.span_id.hex(): span for span in receiver.spans}
    assert len(spans) == len(receiver.spans) == 12
    for rollout in ROLLOUTS:
        root = spans[root_span_id("r", rollout)]
        assert root.name == "invoke_agent"
        assert attributes(root)["otel_gym.rollout.synthesized"].bool_value
        lines = (captures / f"{rollout}.capture.jsonl").read_bytes().splitlines()
        assert len(lines) == 3
        for line in lines:
            raw = orjson.loads(line)
            assert not {"trace", "schema", "rollout_id"} & set(raw), "no key of ours"
            span = spans[raw["model_call_id"][:16]]
            assert span.trace_id.hex() == trace_id("r", rollout)
            assert span.parent_span_id == root.span_id
            assert abs(span.start_time_unix_nano - raw["started_at"] * 1e9) < 1000
            assert abs(span.end_time_unix_nano - raw["completed_at"] * 1e9) < 1000
            found = attributes(span)
            assert found["gen_ai.request.model"].string_value == "m"
            assert found["gen_ai.conversation.id"].string_value == "s-1"
            assert found["otel_gym.model_server.name"].string_value == "policy_model"
            if raw["dialect"] == "responses":
                assert found["error.type"].string_value == "rate_limit"
                assert span.status.message == "slow down"
            else:
                assert found["gen_ai.usage.input_tokens"].int_value > 10
                assert span.status.code == 0
            if raw["dialect"] == "messages":
                assert found["gen_ai.request.stream"].bool_value
                assert "gen_ai.response.time_to_first_chunk" in found
    (link,) = spans[root_span_id("r", "0-0-a1")].links
    assert link.span_id.hex() == root_span_id("r", "0-0")
