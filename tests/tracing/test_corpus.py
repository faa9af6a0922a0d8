"""Every recorded exchange as a span: the bridge agrees with the record, and later export with live export, for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym.capture.facts import ExchangeFacts
from otel_gym.capture.line import encode_line
from otel_gym.capture.record import build_model_call_record, build_raw_record
from otel_gym.capture.tape import BodyTape
from otel_gym.capture.written import Written
from otel_gym.correlation.run import Run
from otel_gym.dialects import is_event_stream
from otel_gym.tracing.backfill import Selection, export_rollouts, rollouts_of
from otel_gym.tracing.encode import encode_span
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.pipeline import Pipeline, PipelineLimits
from otel_gym.tracing.sinks import EndpointSink
from otel_gym.tracing.span_data import ERROR
from otel_gym.tracing.spans import NOT_FAILURES, RecordPlace, span_from_record
from tests.corpus.exchanges import Recorded, exchanges
from tests.tracing.conformance import problems
from tests.tracing.receiver import Receiver
from tests.tracing.records import BASE_TIME, call_id

OPTIONS = SpanOptions(
    semconv=("genai-0.1", "genai-1.41", "openinference"), content="SPAN_AND_EVENT"
)


def tape(data: bytes) -> BodyTape:
    made = BodyTape(1 << 30)
    if data:
        made.append(data)
    return made


def raw_of(number: int, exchange: Recorded) -> dict[str, Any]:
    """The raw line of an exchange, as the capture room makes it."""
    streamed = exchange.streaming or is_event_stream(exchange.content_type)
    raw = build_raw_record(
        ExchangeFacts(
            model_call_id=call_id(number),
            rollout_id=f"{number % 20}-0",
            dialect=exchange.dialect,
            started_at=BASE_TIME + number,
            completed_at=BASE_TIME + number + 0.75,
            latency_ms=750.0,
            latency_ttft_ms=100.0,
            status_code=exchange.status_code,
            ending="returned",
            request=tape(b"" if exchange.request is None else orjson.dumps(exchange.request)),
            response=tape(exchange.body),
            response_encoding=exchange.content_encoding,
            response_content_type="text/event-stream" if streamed else exchange.content_type,
            chunks=3,
        )
    )
    read: dict[str, Any] = orjson.loads(encode_line(raw))
    return read


@pytest.fixture(scope="module")
def corpus(shared_dir: Path) -> list[dict[str, Any]]:
    """The raw lines of all recorded exchanges."""
    folder = shared_dir / "corpus"
    return [raw_of(number, exchange) for number, exchange in enumerate(exchanges(folder))]


def test_every_exchange_conforms_and_agrees_with_its_record(
    corpus: list[dict[str, Any]], run: Run
) -> None:
    """Each span follows the conventions and schemas, stays within its budget, and says what the derived record says."""
    wrong: list[str] = []
    for number, raw in enumerate(corpus):
        span = span_from_record(raw, RecordPlace("0-0", "0-0.capture.jsonl", 0), run, OPTIONS)
        record = build_model_call_record(raw, 0)
        attributes = span.attributes
        wrong.extend(f"{number}: {problem}" for problem in problems(span, OPTIONS.semconv))
        if len(encode_span(span)) > OPTIONS.span_max_bytes:
            wrong.append(f"{number}: {len(encode_span(span))} bytes")
        failed = record.error_category is not None and record.error_category not in NOT_FAILURES
        for name, ours, theirs in (
            ("input", attributes.get("gen_ai.usage.input_tokens"), record.tokens_in),
            ("output", attributes.get("gen_ai.usage.output_tokens"), record.tokens_out),
            (
                "cached",
                attributes.get("gen_ai.usage.cache_read.input_tokens"),
                record.cached_tokens or None,
            ),
            (
                "reasoning",
                attributes.get("gen_ai.usage.reasoning.output_tokens"),
                record.tokens_reasoning or None,
            ),
            ("id", attributes.get("gen_ai.response.id"), record.response_id or None),
            (
                "tools",
                attributes.get("otel_gym.tool_calls.count", 0),
                len(record.tool_calls),
            ),
            ("failed", span.status.code == ERROR, failed),
        ):
            if ours != theirs:
                wrong.append(f"{number}: {name}: span {ours!r}, record {theirs!r}")
    assert len(corpus) > 500
    assert not wrong, "\n".join(wrong[:30])


def test_live_and_later_export_are_equal_for_the_whole_corpus(
    corpus: list[dict[str, Any]], captures: tuple[Path, Run], receiver: Receiver
) -> None:
    """Encoded bytes of every span are the same whether it was exported as it was written or from the files afterwards."""
    directory, run = captures
    endpoint = OtlpEndpoint(f"{receiver.url}/v1/traces")
    pipeline = Pipeline(
        directory, run, OPTIONS, endpoint, limits=PipelineLimits(interval_s=0.05)
    ).start()
    for raw in corpus:
        path = directory / f"{raw['rollout_id']}.capture.jsonl"
        offset = path.stat().st_size if path.exists() else 0
        line = encode_line(raw)
        line = line if line.endswith(b"\n") else line + b"\n"
        with path.open("ab") as file:
            file.write(line)
        pipeline.offer(Written(raw["rollout_id"], raw, path, offset, len(line)))
    assert pipeline.close(60)
    live = receiver.distinct
    receiver.kept.clear()
    rollouts = [rollout_id for rollout_id, _ in rollouts_of(directory, Selection())]
    sink = EndpointSink(directory, run, OPTIONS, endpoint)
    summary = export_rollouts(directory, rollouts, run, OPTIONS, sink)
    later = receiver.distinct
    assert summary.calls == len(corpus) == len(live)
    assert {key: later[key] for key in live} == live
    assert len(later) == len(live) + summary.synthesized
