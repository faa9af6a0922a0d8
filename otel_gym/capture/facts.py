"""What is known of one exchange when it ends, before anybody has asked what its bytes mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from otel_gym.capture.tape import BodyTape
from otel_gym.dialects import DialectName, Terminal

Ending = Literal["returned", "exception", "cancelled", "disconnected"]
"""How the application below left the exchange: it returned, raised, was cancelled, or the client went away
before the terminal event (a client that leaves after it is `returned`)."""


@dataclass(slots=True)
class ExchangeFacts:
    """Facts of one exchange, collected while it runs; `otel_gym.capture.raw_record.build_raw_record` makes the line from them.

    Times are Unix seconds UTC; durations are milliseconds of a monotonic clock.
    """

    model_call_id: str
    rollout_id: str
    dialect: DialectName
    request: BodyTape
    response: BodyTape
    started_at: float = 0.0
    completed_at: float = 0.0
    latency_ms: float = 0.0
    latency_ttft_ms: float | None = None
    status_code: int | None = None
    ending: Ending = "returned"
    request_encoding: str = ""
    """Content-Encoding of the request, lower case, empty where there was none."""
    response_encoding: str = ""
    response_content_type: str = ""
    terminal: Terminal | None = None
    """The terminal event seen on the wire, null where none was (always null for a body that is no stream)."""
    chunks: int = 0
    """Response body messages that carried bytes."""
    exception: BaseException | None = None
    model_ref: Mapping[str, str] | None = None
    client_session_id: str | None = None
    trace: Mapping[str, Any] | None = None
    """`trace_id`, `span_id`, `parent_span_id`, `inbound` (traceparent, tracestate or null)."""
    engine: Mapping[str, Any] | None = None
    """`provider`, `address`, `port` of the engine that answers, as far as configured."""
    client: Mapping[str, Any] | None = None
    """Who called, from allow-listed headers: `agent_id`, `parent_id`, `request_kind`, `headers`, `baggage`."""
    sampling: Mapping[str, Any] | None = None
    """`requested`, `pinned`, `effective`, `overridden`, `outbound_sha256`."""
    resend: Mapping[str, Any] | None = None
    """`count` (SDK retry header), `of` (model_call_id it repeats), `reason` (`header` or `same_bytes`)."""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    """Adapter outcome: `upstream_attempted`, `response_source`, `upstream_status_code`, `local_response_reason`."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Anything else the layers below had to say; each key becomes a key of the line (`stream_usage_requested`)."""
    generation: int = 0
    """Generation of the rollout's file when the call began; an older one than the file's is a straggler."""
