"""The raw line and the record derived from it, as typed frozen models.

`build_raw_record` makes the raw line from an exchange, `encode_line` its bytes, `build_model_call_record`
the derived record: see `docs/record.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from otel_gym.capture.derive import derive_fields
from otel_gym.capture.line import encode_line
from otel_gym.capture.raw_record import SCHEMA, build_raw_record


class CaptureRecord(BaseModel):
    """One raw line of `<rollout_id>.capture.jsonl`; tolerant: absent keys are null, unknown ones kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    model_call_id: str | None = Field(None, description="32 hex digits that name the call.")
    dialect: str | None = Field(
        None, description="`responses`, `chat`, `messages` or `completions`."
    )
    model_ref: Any = Field(
        None, description="`type` and `name` of the model server; null where it has no name."
    )
    started_at: float | None = Field(
        None, description="Unix seconds UTC just before the application was called."
    )
    completed_at: float | None = Field(None, description="Unix seconds UTC when the call ended.")
    latency_ms: float | None = Field(
        None, description="Milliseconds of a monotonic clock from start to end."
    )
    latency_ttft_ms: float | None = Field(
        None,
        description="Milliseconds to the first body chunk that is no keep-alive comment; null where none was sent.",
    )
    status_code: int | None = Field(
        None,
        description="HTTP status sent, or carried by the exception; null where there was none.",
    )
    error_category: str | None = Field(
        None, description="What went wrong, one of the error categories; null where nothing did."
    )
    request: Any = Field(
        None, description="The request as received; null where it is no JSON object."
    )
    response: Any = Field(
        None,
        description="The response as received, or put together from the stream; null where there is none.",
    )
    client_session_id: str | None = Field(
        None,
        description="The one `X-Session-Id` of the request; absent where there is not exactly one.",
    )
    upstream_attempted: bool | None = Field(
        None, description="Whether the adapter called an engine; absent where no adapter said so."
    )
    response_source: str | None = Field(
        None, description="`upstream` or `local`; absent where no adapter said so."
    )
    upstream_status_code: int | None = Field(
        None, description="HTTP status of the engine; absent where no adapter said so."
    )
    local_response_reason: str | None = Field(
        None, description="Why the adapter answered itself; absent where it did not."
    )
    request_raw: str | None = Field(
        None,
        description="Request text that is no JSON object, or not exactly representable as one.",
    )
    response_raw: str | None = Field(
        None,
        description="Full text of a stream, or response text that is no JSON object; a cut body's head, then its tail.",
    )
    schema_version: int | None = Field(
        None,
        alias="schema",
        description="Version of the line, 1; absent in lines of other producers.",
    )
    rollout_id: str | None = Field(None, description="The rollout that the call belongs to.")
    trace: Any = Field(
        None,
        description="`trace_id`, `span_id`, `parent_span_id` and the `inbound` trace context of the call.",
    )
    engine: Any = Field(
        None, description="`provider`, `address` and `port` of the engine, as far as configured."
    )
    client: Any = Field(None, description="Who called, from allow-listed headers.")
    stream: Any = Field(
        None,
        description="`chunks` and `terminal` (`complete`, `incomplete`, `error`, `none`); absent where the response is no stream.",
    )
    sampling: Any = Field(
        None, description="Sampling parameters `requested`, `pinned` and `effective`."
    )
    resend: Any = Field(
        None, description="`count`, `of` and `reason` of a request that repeats another."
    )
    request_raw_b64: str | None = Field(
        None, description="Request bytes that are no UTF-8, or could not be decoded, in base64."
    )
    response_raw_b64: str | None = Field(
        None, description="Response bytes that are no UTF-8, or could not be decoded, in base64."
    )
    request_raw_encoding: str | None = Field(
        None,
        description="Content encoding still on `request_raw_b64`; absent where it was removed.",
    )
    response_raw_encoding: str | None = Field(
        None,
        description="Content encoding still on `response_raw_b64`; absent where it was removed.",
    )
    request_cut: Any = Field(
        None,
        description="`size_bytes`, `sha256`, `head_bytes`, `tail_bytes` of a request above the recording limit.",
    )
    response_cut: Any = Field(
        None,
        description="`size_bytes`, `sha256`, `head_bytes`, `tail_bytes` of a response above the recording limit.",
    )
    unmerged: Any = Field(
        None, description="Parts of the stream that have no place in `response`, as they came."
    )
    redacted: Any = Field(
        None,
        description="Paths of the fields that `capture_redact` replaced before the line was written.",
    )
    exception: Any = Field(
        None, description="`type` and `message` of an exception that left the application."
    )
    stream_usage_requested: bool | None = Field(
        None,
        description="True where usage was asked of the engine for a caller who did not, and kept from them.",
    )
    stream_usage_chunk: str | None = Field(
        None, description="The event with that usage, which the caller did not get, as it came."
    )


class ModelRef(BaseModel):
    """The model server that answered."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str | None = Field(None, description="Kind of server, `responses_api_models`.")
    name: str | None = Field(None, description="Name of the server in the configuration.")


class ModelCallRecord(BaseModel):
    """What one model call was, derived from its raw line by `build_model_call_record`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model_call_id: str | None = Field(None, description="Raw `model_call_id`.")
    dialect: str | None = Field(None, description="Raw `dialect`.")
    status_code: int | None = Field(None, description="Raw `status_code`.")
    error_category: str | None = Field(None, description="Raw `error_category`.")
    response_id: str | None = Field(None, description="`response.id` where it is text.")
    client_session_id: str | None = Field(
        None, description="Raw `client_session_id` where it is text."
    )
    call_index: int = Field(0, description="Position of the line in its file.")
    model_ref: ModelRef | None = Field(None, description="Raw `model_ref`.")
    model: str | None = Field(None, description="`response.model`, else `request.model`.")
    response_status: str | None = Field(None, description="`response.status` where it is text.")
    finish_reason: str | None = Field(
        None,
        description="`response.stop_reason`, the first choice's `finish_reason`, `incomplete_details.reason`, else the final `status` of a Responses call.",
    )
    finish_reasons: tuple[str | None, ...] = Field(
        (),
        description="Finish reason of every choice in order; of other dialects the one there is.",
    )
    upstream_attempted: bool | None = Field(None, description="Raw `upstream_attempted`.")
    response_source: str | None = Field(None, description="Raw `response_source`.")
    upstream_status_code: int | None = Field(None, description="Raw `upstream_status_code`.")
    local_response_reason: str | None = Field(None, description="Raw `local_response_reason`.")
    started_at: float | None = Field(None, description="Raw `started_at`, Unix seconds.")
    completed_at: float | None = Field(None, description="Raw `completed_at`, Unix seconds.")
    latency_total_ms: float | None = Field(None, description="Raw `latency_ms`.")
    latency_ttft_ms: float | None = Field(None, description="Raw `latency_ttft_ms`.")
    tokens_in: int | None = Field(
        None, description="Input tokens including cached ones; null where not reported."
    )
    tokens_out: int | None = Field(None, description="Output tokens; null where not reported.")
    tokens_reasoning: int | None = Field(
        None, description="Output tokens spent on reasoning; null where not reported."
    )
    tokens_total: int | None = Field(
        None, description="The provider's total, else input + output where both are known."
    )
    tokens_audio_in: int | None = Field(
        None, description="Audio tokens of the input; null where not reported."
    )
    tokens_audio_out: int | None = Field(
        None, description="Audio tokens of the output; null where not reported."
    )
    usage_disagrees: tuple[str, ...] = Field(
        (),
        description="Counts of the provider that contradict each other: `total`, `cached`, `cache_write`, `reasoning`.",
    )
    cache_hit: bool | None = Field(
        None, description="Whether `cached_tokens` is above 0; null where not reported."
    )
    cached_tokens: int | None = Field(
        None, description="Input tokens read from a cache; null where not reported."
    )
    cache_creation_tokens: int | None = Field(
        None, description="Input tokens written to a cache; null where not reported."
    )
    request: dict[str, Any] | None = Field(None, description="Raw `request` where it is an object.")
    response: dict[str, Any] | None = Field(
        None, description="Raw `response` where it is an object."
    )
    request_raw: str | None = Field(None, description="Raw `request_raw` where it is text.")
    response_raw: str | None = Field(None, description="Raw `response_raw` where it is text.")
    tool_calls: list[dict[str, Any]] = Field(
        default_factory=list,
        description='Tool calls of every kind in the order of the response: `call_id`, `name` (of a hosted tool its type without `_call`), `arguments` (parsed where they are JSON, else `{"_raw": text}`).',
    )
    reasoning_content: str | None = Field(
        None, description="Reasoning text from every field that carries it, joined by newline."
    )
    rollout_id: str | None = Field(None, description="Raw `rollout_id` where it is text.")
    trace_id: str | None = Field(None, description="`trace.trace_id`.")
    span_id: str | None = Field(None, description="`trace.span_id`.")
    streamed: bool = Field(False, description="Whether the response was a stream.")
    stream_chunks: int | None = Field(
        None, description="`stream.chunks`; null where the response is no stream."
    )
    stream_terminal: str | None = Field(
        None, description="`stream.terminal`; null where the response is no stream."
    )
    request_cut: bool = Field(
        False, description="Whether the request was above the recording limit."
    )
    response_cut: bool = Field(
        False, description="Whether the response was above the recording limit."
    )
    unmerged_count: int = Field(0, description="How many parts of the stream are in `unmerged`.")
    sampling: dict[str, Any] | None = Field(None, description="Raw `sampling`.")
    resend: dict[str, Any] | None = Field(None, description="Raw `resend`.")
    engine: dict[str, Any] | None = Field(None, description="Raw `engine`.")
    client: dict[str, Any] | None = Field(None, description="Raw `client`.")
    stream_usage_requested: bool = Field(False, description="Raw `stream_usage_requested`.")


def build_model_call_record(raw: Mapping[str, Any], call_index: int = 0) -> ModelCallRecord:
    """The derived record of a raw line, our own or another producer's.

    Raises pydantic.ValidationError where a field that is taken as it is has a wrong type.
    """
    return ModelCallRecord(call_index=call_index, **derive_fields(raw))


__all__ = [
    "SCHEMA",
    "CaptureRecord",
    "ModelCallRecord",
    "ModelRef",
    "build_model_call_record",
    "build_raw_record",
    "encode_line",
]
