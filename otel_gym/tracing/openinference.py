"""Attributes of OpenInference that are not one of ours under another name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from otel_gym.tracing.span_data import AttributeValue

PROVIDERS: Final[Mapping[str, str]] = {
    "openai": "openai",
    "anthropic": "anthropic",
    "azure.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "aws.bedrock": "aws",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "mistral_ai": "mistralai",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "groq": "groq",
    "perplexity": "perplexity",
    "x_ai": "xai",
    "together": "together",
    "fireworks": "fireworks",
    "ollama": "ollama",
}
"""`llm.provider` of a provider; those it does not know have only `llm.system`."""

PARAMETERS: Final[Mapping[str, str]] = {
    "gen_ai.request.max_tokens": "max_tokens",
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.top_k": "top_k",
    "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty",
    "gen_ai.request.stop_sequences": "stop",
    "gen_ai.request.seed": "seed",
    "gen_ai.request.choice.count": "n",
    "gen_ai.request.stream": "stream",
    "gen_ai.request.reasoning.level": "reasoning_effort",
}
"""Canonical attribute -> key in `llm.invocation_parameters`."""


def add_call(attributes: dict[str, AttributeValue], facts: Mapping[str, AttributeValue]) -> None:
    """Adds what a call has beyond renamed attributes."""
    attributes["openinference.span.kind"] = "LLM"
    if (provider := PROVIDERS.get(str(facts.get("gen_ai.provider.name")))) is not None:
        attributes["llm.provider"] = provider
    model = facts.get("gen_ai.response.model", facts.get("gen_ai.request.model"))
    if model is not None:
        attributes["llm.model_name"] = model
    parameters = {key: facts[name] for name, key in PARAMETERS.items() if name in facts}
    if parameters:
        attributes["llm.invocation_parameters"] = orjson.dumps(parameters).decode()
    reasons = facts.get("gen_ai.response.finish_reasons")
    if isinstance(reasons, list) and reasons:
        attributes["llm.finish_reason"] = reasons[0]
    _add_total(attributes, facts)


def add_rollout(attributes: dict[str, AttributeValue], facts: Mapping[str, AttributeValue]) -> None:
    """Adds what a rollout has beyond renamed attributes."""
    attributes["openinference.span.kind"] = "AGENT"
    _add_total(attributes, facts)


def _add_total(attributes: dict[str, AttributeValue], facts: Mapping[str, AttributeValue]) -> None:
    given = facts.get("gen_ai.usage.input_tokens")
    made = facts.get("gen_ai.usage.output_tokens")
    if isinstance(given, int) and isinstance(made, int):
        attributes["llm.token_count.total"] = given + made
