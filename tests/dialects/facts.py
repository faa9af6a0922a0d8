"""Facts of an exchange made by hand, and what becomes of them."""

from __future__ import annotations

import json
from typing import Any

from otel_gym.capture.facts import ExchangeFacts
from otel_gym.capture.record import (
    ModelCallRecord,
    build_model_call_record,
    build_raw_record,
    encode_line,
)
from otel_gym.capture.tape import BodyTape
from otel_gym.dialects import DialectName

EVENT_STREAM = "text/event-stream; charset=utf-8"


def facts(dialect: DialectName, response: bytes, **overrides: Any) -> ExchangeFacts:
    """A finished exchange; `streamed=True` for an event stream, `max_body_bytes` for the recording limit."""
    limit = overrides.pop("max_body_bytes", 64 * 1024 * 1024)
    request = overrides.pop("request", b'{"model": "m"}')
    if overrides.pop("streamed", False):
        overrides.setdefault("response_content_type", EVENT_STREAM)
    tapes = []
    for body in (request, response):
        tape = BodyTape(limit)
        for start in range(0, len(body), 1000):
            tape.append(body[start : start + 1000])
        tapes.append(tape)
    fields: dict[str, Any] = {
        "model_call_id": "0" * 31 + "1",
        "rollout_id": "7-2",
        "started_at": 1_764_000_000.0,
        "completed_at": 1_764_000_001.0,
        "latency_ms": 1000.0,
        "latency_ttft_ms": 20.0,
        "status_code": 200,
        "ending": "returned",
        "response_content_type": "application/json",
        **overrides,
    }
    return ExchangeFacts(dialect=dialect, request=tapes[0], response=tapes[1], **fields)


def line(dialect: DialectName, response: bytes, **overrides: Any) -> dict[str, Any]:
    """The raw line, read back from its bytes."""
    encoded = encode_line(build_raw_record(facts(dialect, response, **overrides)))
    assert encoded.endswith(b"\n") and encoded.count(b"\n") == 1
    found: dict[str, Any] = json.loads(encoded)
    return found


def derived(dialect: DialectName, response: bytes, **overrides: Any) -> ModelCallRecord:
    """The derived record of the line."""
    return build_model_call_record(line(dialect, response, **overrides), 0)
