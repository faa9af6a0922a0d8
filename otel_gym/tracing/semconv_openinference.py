"""OpenInference as a table: https://github.com/Arize-ai/openinference, semantic conventions 0.1."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from otel_gym.tracing.convention import AGENT, BOTH, Attribute, Convention

_OPENINFERENCE: Final[dict[str, Attribute]] = {
    "openinference.span.kind": Attribute(
        "string", "required", "`LLM` or `AGENT`.", BOTH, ("LLM", "AGENT"), open_enum=False
    ),
    "llm.provider": Attribute("string", "recommended", "Provider, where OpenInference knows it."),
    "llm.system": Attribute("string", "recommended", "Provider as the bridge names it."),
    "llm.model_name": Attribute("string", "recommended", "Model that answered, else asked for."),
    "llm.request.model_name": Attribute("string", "recommended", "Model asked for.", BOTH),
    "llm.response.model_name": Attribute("string", "recommended", "Model that answered."),
    "llm.invocation_parameters": Attribute(
        "string", "recommended", "JSON object of the sampling parameters."
    ),
    "llm.token_count.prompt": Attribute("int", "recommended", "All input tokens.", BOTH),
    "llm.token_count.completion": Attribute("int", "recommended", "All output tokens.", BOTH),
    "llm.token_count.total": Attribute("int", "recommended", "Sum of both.", BOTH),
    "llm.token_count.prompt_details.cache_read": Attribute("int", "recommended", "Cached input."),
    "llm.token_count.prompt_details.cache_write": Attribute(
        "int", "recommended", "Input written to a cache."
    ),
    "llm.token_count.completion_details.reasoning": Attribute(
        "int", "recommended", "Reasoning tokens."
    ),
    "llm.finish_reason": Attribute("string", "recommended", "Finish reason of the first choice."),
    "session.id": Attribute("string", "recommended", "Session that the caller named.", BOTH),
    "agent.name": Attribute("string", "recommended", "Agent of the rollout.", AGENT),
    "input.value": Attribute("string", "opt-in", "Input messages as JSON.", BOTH),
    "input.mime_type": Attribute("string", "opt-in", "`application/json`.", BOTH),
    "output.value": Attribute("string", "opt-in", "Output messages as JSON.", BOTH),
    "output.mime_type": Attribute("string", "opt-in", "`application/json`.", BOTH),
}

OPENINFERENCE: Final = Convention(
    name="openinference",
    schema_url="",
    attributes=MappingProxyType(_OPENINFERENCE),
    renames=MappingProxyType(
        {
            "gen_ai.provider.name": "llm.system",
            "gen_ai.request.model": "llm.request.model_name",
            "gen_ai.response.model": "llm.response.model_name",
            "gen_ai.usage.input_tokens": "llm.token_count.prompt",
            "gen_ai.usage.output_tokens": "llm.token_count.completion",
            "gen_ai.usage.cache_read.input_tokens": "llm.token_count.prompt_details.cache_read",
            "gen_ai.usage.cache_write.input_tokens": "llm.token_count.prompt_details.cache_write",
            "gen_ai.usage.reasoning.output_tokens": "llm.token_count.completion_details.reasoning",
            "gen_ai.conversation.id": "session.id",
            "gen_ai.agent.name": "agent.name",
        }
    ),
)
