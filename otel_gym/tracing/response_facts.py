"""What a response says: ids, finish reasons, usage and tool calls, read by the shape that the answer has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_gym.capture.contents import tool_calls_of
from otel_gym.capture.derive import finish_reasons
from otel_gym.dialects.usage import TokenUsage
from otel_gym.tracing.reading import MAX_ITEMS, count, mapping, text
from otel_gym.tracing.span_data import AttributeValue

_INT64: Final = 2**63

_DETAILS: Final = (
    ("prompt_tokens_details", "input_tokens"),
    ("input_tokens_details", "input_tokens"),
    ("completion_tokens_details", "output_tokens"),
    ("output_tokens_details", "output_tokens"),
)
LIMIT_REASONS: Final = frozenset(
    {"length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"}
)
"""Finish reasons that say the output was cut by a limit."""


def add_response(facts: dict[str, AttributeValue], response: Mapping[str, Any]) -> None:
    """Adds id, model and status of an answer."""
    if (identity := text(response.get("id"))) is not None:
        facts["gen_ai.response.id"] = identity
    if (model := text(response.get("model"))) is not None:
        facts["gen_ai.response.model"] = model
    if (status := text(response.get("status"))) is not None:
        facts["otel_gym.response.status"] = status


def add_openai_response(facts: dict[str, AttributeValue], response: Mapping[str, Any]) -> None:
    """Adds what only OpenAI itself answers with."""
    if (tier := text(response.get("service_tier"))) is not None:
        facts["openai.response.service_tier"] = tier
    if (fingerprint := text(response.get("system_fingerprint"))) is not None:
        facts["openai.response.system_fingerprint"] = fingerprint


def add_usage(facts: dict[str, AttributeValue], usage: TokenUsage) -> None:
    """Adds the token counts; a part of a total only where it is not 0 (the convention's rule)."""
    for name, tokens in (
        ("gen_ai.usage.input_tokens", usage.input),
        ("gen_ai.usage.output_tokens", usage.output),
    ):
        if tokens is not None and tokens < _INT64:
            facts[name] = tokens
    for name, part in (
        ("gen_ai.usage.cache_read.input_tokens", usage.cached),
        ("gen_ai.usage.cache_write.input_tokens", usage.cache_write),
        ("gen_ai.usage.reasoning.output_tokens", usage.reasoning),
        ("gen_ai.usage.audio.input_tokens", usage.audio_input),
        ("gen_ai.usage.audio.output_tokens", usage.audio_output),
    ):
        if part and part < _INT64:
            facts[name] = part


def add_modalities(facts: dict[str, AttributeValue], response: Mapping[str, Any]) -> None:
    """Adds which tokens were text and which images, where the provider tells and it is not 0; audio is among the usual counts."""
    usage = response.get("usage")
    if type(usage) is not dict:
        return
    for key, direction in _DETAILS:
        details = usage.get(key)
        if type(details) is not dict:
            continue
        for modality in ("text", "image"):
            if tokens := count(details.get(f"{modality}_tokens")):
                facts[f"gen_ai.usage.{modality}.{direction}"] = tokens
        cached = details.get("cached_tokens_details")
        if type(cached) is dict:
            for modality in ("text", "image", "audio"):
                if tokens := count(cached.get(f"{modality}_tokens")):
                    facts[f"gen_ai.usage.{modality}.cache_read.input_tokens"] = tokens


def finish_reasons_of(response: Mapping[str, Any]) -> list[str | None]:
    """One reason per choice, as the record reads them; null where a choice has none."""
    return [text(reason) for reason in finish_reasons(response)[:MAX_ITEMS]]


def tool_call_names(response: Mapping[str, Any]) -> list[str]:
    """The names of the tools that the response calls, as the record reads them; an empty string for one without a name."""
    return [text(call["name"]) or "" for call in tool_calls_of(response)]


def error_of(response: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """(code, message) of the error object in a response; null for what it lacks."""
    error = response.get("error")
    if type(error) is str:
        return None, text(error)
    described = mapping(error)
    code = text(described.get("code")) or text(described.get("type"))
    if code is None and type(described.get("code")) is int:
        code = str(described["code"])
    message = text(described.get("message"))
    if not described and response.get("object") == "error":  # the older vLLM form
        code, message = text(response.get("type")), text(response.get("message"))
    if not described and message is None:
        message = text(response.get("detail"))
    return code, message
