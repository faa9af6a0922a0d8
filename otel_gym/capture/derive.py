"""The rules by which a raw line becomes the fields of a `ModelCallRecord`; pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_gym.capture.contents import reasoning_of, tool_calls_of
from otel_gym.dialects.usage import read_usage

_AS_IT_IS = (
    "model_call_id",
    "dialect",
    "status_code",
    "error_category",
    "model_ref",
    "upstream_attempted",
    "response_source",
    "upstream_status_code",
    "local_response_reason",
    "started_at",
    "completed_at",
    "latency_ttft_ms",
)
_FINAL_STATUSES = frozenset({"completed", "incomplete", "failed", "cancelled"})


def derive_fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """All fields of the derived record but `call_index`."""
    fields: dict[str, Any] = {name: raw.get(name) for name in _AS_IT_IS}
    request, response = _object(raw.get("request")), _object(raw.get("response"))
    fields["request"], fields["response"] = request, response
    fields["latency_total_ms"] = raw.get("latency_ms")
    for name in ("request_raw", "response_raw", "client_session_id", "rollout_id"):
        fields[name] = _text(raw.get(name))
    answer = response or {}
    fields["response_id"] = _text(answer.get("id"))
    fields["model"] = _text(answer.get("model")) or _text((request or {}).get("model"))
    fields["response_status"] = _text(answer.get("status"))
    reasons = finish_reasons(answer)
    fields["finish_reasons"] = reasons
    fields["finish_reason"] = next((reason for reason in reasons if reason is not None), None)
    fields.update(_counts(raw.get("dialect"), response))
    fields["tool_calls"] = tool_calls_of(answer)
    fields["reasoning_content"] = reasoning_of(answer)
    for name in ("sampling", "resend", "engine", "client"):
        fields[name] = _object(raw.get(name))
    trace = _object(raw.get("trace")) or {}
    fields["trace_id"] = _text(trace.get("trace_id"))
    fields["span_id"] = _text(trace.get("span_id"))
    fields.update(_stream(raw))
    for name in ("request_cut", "response_cut"):
        fields[name] = raw.get(name) is not None
    unmerged = raw.get("unmerged")
    fields["unmerged_count"] = len(unmerged) if isinstance(unmerged, list) else 0
    fields["stream_usage_requested"] = raw.get("stream_usage_requested") is True
    return fields


def finish_reasons(response: Mapping[str, Any]) -> tuple[str | None, ...]:
    """Why generation ended, one entry a choice.

    `stop_reason`; else every choice's `finish_reason`; else `incomplete_details.reason`; else the final
    `status` of a Responses call (a response that is queued or in progress has none).
    """
    reason = _text(response.get("stop_reason"))
    if reason is not None:
        return (reason,)
    choices = response.get("choices")
    if isinstance(choices, list):
        return tuple(
            _text(choice.get("finish_reason")) for choice in choices if isinstance(choice, dict)
        )
    details = _object(response.get("incomplete_details")) or {}
    reason = _text(details.get("reason"))
    if reason is None and "stop_reason" not in response:
        status = _text(response.get("status"))
        reason = status if status in _FINAL_STATUSES else None
    return () if reason is None else (reason,)


def _counts(dialect: object, response: Mapping[str, Any] | None) -> dict[str, Any]:
    usage = read_usage(str(dialect), response)
    return {
        "tokens_in": usage.input,
        "tokens_out": usage.output,
        "tokens_reasoning": usage.reasoning,
        "tokens_total": usage.total,
        "tokens_audio_in": usage.audio_input,
        "tokens_audio_out": usage.audio_output,
        "usage_disagrees": usage.disagrees,
        "cached_tokens": usage.cached,
        "cache_hit": None if usage.cached is None else usage.cached > 0,
        "cache_creation_tokens": usage.cache_write,
    }


def _stream(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Whether there was a stream and how it ended; of lines without `stream`, as far as they tell."""
    stream = _object(raw.get("stream"))
    if stream is not None:
        chunks = stream.get("chunks")
        return {
            "streamed": True,
            "stream_chunks": chunks if type(chunks) is int else None,
            "stream_terminal": _text(stream.get("terminal")),
        }
    if "schema" in raw or not isinstance(raw.get("response_raw"), str):
        return {}
    if not isinstance(raw.get("response"), dict):
        return {}
    category = raw.get("error_category")
    terminal = _TERMINALS.get(category) if category is None or _text(category) else None
    return {"streamed": True, "stream_terminal": terminal}


_TERMINALS: Final = {
    None: "complete",
    "incomplete": "incomplete",
    "upstream_error": "error",
    "stream_truncated": "none",
}
"""How the stream of a line ended that does not say so itself, by its error category."""


def _object(value: object) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
