"""Traffic with known totals: spans and metrics as otel-gym sends them, without its code.

The stack's configuration must work for these names whatever the package does; that the package uses the same names is
checked by ``test_names.py``, and the demo's real traffic goes through the same backends in ``test_collector_demo.py``.
"""

import hashlib
import time
import urllib.request
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

MODELS = ("test-small", "test-big")
SERVERS = ("policy", "judge")
Value = str | int | float | bool


@dataclass
class Sent:
    """What was sent, for comparison with what the backends say."""

    calls: int = 0
    failed: int = 0
    streams_cut: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    spans: dict[str, set[str]] = field(default_factory=dict)
    """Span ids by trace id, both as hex."""
    rollouts: list[str] = field(default_factory=list)


def identifier(name: str, size: int) -> bytes:
    """A deterministic id of ``size`` bytes."""
    return hashlib.sha256(name.encode()).digest()[:size]


def key_value(key: str, value: Value) -> KeyValue:
    """One OTLP attribute."""
    if isinstance(value, bool):
        return KeyValue(key=key, value=AnyValue(bool_value=value))
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    if isinstance(value, float):
        return KeyValue(key=key, value=AnyValue(double_value=value))
    return KeyValue(key=key, value=AnyValue(string_value=value))


def post_spans(otlp_http: str, spans: list[Span], service: str = "otel-gym") -> None:
    """Send spans in one OTLP/HTTP request; raises when the answer is not 200."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.append(key_value("service.name", service))
    group.scope_spans.add().spans.extend(spans)
    message = urllib.request.Request(
        f"{otlp_http}/v1/traces",
        request.SerializeToString(),
        {"content-type": "application/x-protobuf"},
    )
    with urllib.request.urlopen(message, timeout=30) as answer:
        assert answer.status == 200


def rollout_spans(rollout: str, calls: int, sent: Sent | None = None) -> list[Span]:
    """The spans of one rollout: a root and its model calls, every fifth failed and every seventh a cut stream."""
    trace_id = identifier(f"trace {rollout}", 16)
    root_id = identifier(f"root {rollout}", 8)
    now_ns = time.time_ns()
    sent = sent or Sent()
    sent.rollouts.append(rollout)
    ids = sent.spans.setdefault(trace_id.hex(), {root_id.hex()})
    start_ns = now_ns - (calls + 1) * 50_000_000
    root = Span(
        trace_id=trace_id,
        span_id=root_id,
        name="invoke_agent demo",
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=now_ns,
        attributes=[
            key_value("gen_ai.operation.name", "invoke_agent"),
            key_value("gen_ai.agent.name", "demo"),
            key_value("otel_gym.rollout.id", rollout),
        ],
    )
    spans = [root]
    for index in range(calls):
        model = MODELS[index % 2]
        failed, cut = index % 5 == 4, index % 7 == 6
        call_start = start_ns + index * 50_000_000
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "llama_cpp",
            "gen_ai.request.model": model,
            "otel_gym.run.id": "r",
            "otel_gym.rollout.id": rollout,
            "otel_gym.model_server.name": SERVERS[index % 2],
            "otel_gym.model_call.id": identifier(f"{rollout} {index}", 16).hex(),
            "otel_gym.dialect": "chat",
        }
        sent.calls += 1
        if index % 3:
            attributes["otel_gym.stream.terminal"] = "none" if cut else "complete"
            attributes["gen_ai.response.time_to_first_chunk"] = 0.01
            sent.streams_cut += cut
        status = Status()
        if failed:
            attributes["error.type"] = "rate_limit" if index % 2 else "timeout"
            status = Status(code=Status.STATUS_CODE_ERROR)
            sent.failed += 1
        else:
            usage = (100 + index, 10 + index, 50)
            attributes["gen_ai.usage.input_tokens"] = usage[0]
            attributes["gen_ai.usage.output_tokens"] = usage[1]
            attributes["gen_ai.usage.cache_read.input_tokens"] = usage[2]
            attributes["gen_ai.usage.cache_creation.input_tokens"] = 0
            sent.input_tokens += usage[0]
            sent.output_tokens += usage[1]
            sent.cached_tokens += usage[2]
        span_id = identifier(f"{rollout} {index}", 8)
        ids.add(span_id.hex())
        spans.append(
            Span(
                trace_id=trace_id,
                span_id=span_id,
                parent_span_id=root_id,
                name=f"chat {model}",
                kind=Span.SPAN_KIND_CLIENT,
                start_time_unix_nano=call_start,
                end_time_unix_nano=call_start + 20_000_000 + index * 1_000_000,
                status=status,
                attributes=[key_value(key, value) for key, value in attributes.items()],
            )
        )
    return spans


def send_rollouts(otlp_http: str, prefix: str, rollouts: int, calls: int) -> Sent:
    """Send ``rollouts`` rollouts of ``calls`` calls each, one request a rollout."""
    sent = Sent()
    for index in range(rollouts):
        post_spans(otlp_http, rollout_spans(f"{prefix}-{index}", calls, sent))
    return sent
