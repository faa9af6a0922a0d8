"""What a request says of itself, as attributes. The body is what the caller sent; `sampling` says what the engine got instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_gym.tracing.reading import mapping, number, sequence, strings, text, whole
from otel_gym.tracing.span_data import AttributeValue

OPERATIONS: Final[Mapping[str, str]] = {"completions": "text_completion"}
"""`gen_ai.operation.name` of a dialect; `chat` for the others."""

_DOUBLES: Final = (
    ("temperature", "gen_ai.request.temperature"),
    ("top_p", "gen_ai.request.top_p"),
    ("frequency_penalty", "gen_ai.request.frequency_penalty"),
    ("presence_penalty", "gen_ai.request.presence_penalty"),
)
_LIMITS: Final[Mapping[str, tuple[str, ...]]] = {"responses": ("max_output_tokens",)}
_OTHER_LIMITS: Final = ("max_completion_tokens", "max_tokens")
"""Keys that bound the output, the first that is not null counts."""
_FORMATS: Final[Mapping[str, str]] = {
    "text": "text",
    "json_object": "json",
    "json_schema": "json",
    "json": "json",
}
OPENAI_API_TYPES: Final[Mapping[str, str]] = {"chat": "chat_completions", "responses": "responses"}


def add_request(
    facts: dict[str, AttributeValue],
    request: Mapping[str, Any],
    dialect: str,
    effective: Mapping[str, Any],
    openai: bool,
) -> None:
    """Adds the parameters of `request`; those in `effective` replace what the caller asked for."""
    sent = {**request, **effective} if effective else request
    if (value := text(request.get("model"))) is not None:
        facts["gen_ai.request.model"] = value
    if request.get("stream") is True:
        facts["gen_ai.request.stream"] = True
    for key in _LIMITS.get(dialect, _OTHER_LIMITS):
        if (limit := whole(sent.get(key))) is not None:
            facts["gen_ai.request.max_tokens"] = limit
            break
    for key, name in _DOUBLES:
        if key in sent and (double := number(sent[key])) is not None:
            facts[name] = double
    if "top_k" in sent and (top_k := whole(sent["top_k"])) is not None:
        facts["gen_ai.request.top_k"] = top_k
    if "seed" in sent and (seed := whole(sent["seed"])) is not None:
        facts["gen_ai.request.seed"] = seed
    if "n" in sent and (choices := whole(sent["n"])) is not None and choices != 1:
        facts["gen_ai.request.choice.count"] = choices
    stop = sent.get("stop_sequences") or sent.get("stop")
    if stop and (sequences := strings([stop] if type(stop) is str else sequence(stop))):
        facts["gen_ai.request.stop_sequences"] = sequences
    if (level := _reasoning_level(sent, dialect)) is not None:
        facts["gen_ai.request.reasoning.level"] = level
    if (kind := _output_type(sent, dialect)) is not None:
        facts["gen_ai.output.type"] = kind
    if (
        dialect == "responses"
        and (previous := text(request.get("previous_response_id"))) is not None
    ):
        facts["gen_ai.request.previous_response.id"] = previous
    if openai:
        if dialect in OPENAI_API_TYPES:
            facts["openai.api.type"] = OPENAI_API_TYPES[dialect]
        tier = text(request.get("service_tier"))
        if tier is not None and tier != "auto":
            facts["openai.request.service_tier"] = tier


def is_compacted(
    dialect: str, request: Mapping[str, Any], response: Mapping[str, Any] | None
) -> bool:
    """Whether the context of a call was compacted: its input or its answer holds a compaction item (Responses) or block (Messages)."""
    if dialect == "responses":
        return _holds_compaction(request.get("input")) or _holds_compaction(
            response.get("output") if response else None
        )
    if dialect == "messages":
        return (bool(response) and _holds_compaction(mapping(response).get("content"))) or any(
            type(message) is dict
            and message.get("role") == "assistant"
            and _holds_compaction(message.get("content"))
            for message in sequence(request.get("messages"))
        )
    return False


def _holds_compaction(items: object) -> bool:
    return type(items) is list and any(
        type(item) is dict and item.get("type") == "compaction" for item in items
    )


def conversation_of(request: Mapping[str, Any]) -> str | None:
    """The conversation that a Responses request names."""
    conversation = request.get("conversation")
    return text(conversation) or text(mapping(conversation).get("id"))


def _reasoning_level(sent: Mapping[str, Any], dialect: str) -> str | None:
    if dialect == "responses":
        return text(mapping(sent.get("reasoning")).get("effort"))
    if dialect == "messages":
        return text(mapping(sent.get("output_config")).get("effort"))
    return text(sent.get("reasoning_effort"))


def _output_type(sent: Mapping[str, Any], dialect: str) -> str | None:
    if dialect == "responses":
        asked = mapping(mapping(sent.get("text")).get("format")).get("type")
    elif dialect == "messages":
        asked = mapping(mapping(sent.get("output_config")).get("format")).get("type")
        if asked is None:  # its name before the parameter was moved
            asked = mapping(sent.get("output_format")).get("type")
    else:
        asked = mapping(sent.get("response_format")).get("type")
        if asked is None and "audio" in sequence(sent.get("modalities")):
            return "speech"
    return _FORMATS.get(asked) if type(asked) is str else None
