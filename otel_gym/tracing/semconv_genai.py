"""The GenAI conventions: v0.1.0 of their own repository, and v1.41 of the core, as tables.

https://github.com/open-telemetry/semantic-conventions-genai; https://github.com/open-telemetry/semantic-conventions/tree/v1.41.1/docs/gen-ai.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from otel_gym.tracing.convention import AGENT, BOTH, INFERENCE, Attribute, Convention, Instrument

OPERATIONS: Final = (
    "chat",
    "generate_content",
    "text_completion",
    "embeddings",
    "retrieval",
    "fetch_response",
    "create_agent",
    "invoke_agent",
    "invoke_workflow",
    "execute_tool",
    "plan",
)
PROVIDERS: Final = (
    "anthropic",
    "aws.bedrock",
    "azure.ai.inference",
    "azure.ai.openai",
    "cohere",
    "deepseek",
    "gcp.gemini",
    "gcp.gen_ai",
    "gcp.vertex_ai",
    "groq",
    "ibm.watsonx.ai",
    "mistral_ai",
    "moonshot_ai",
    "openai",
    "perplexity",
    "x_ai",
)

DURATION_BUCKETS: Final = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)
"""Advised buckets of durations, in seconds."""
AGENT_DURATION_BUCKETS: Final = (
    0.1,
    0.2,
    0.4,
    0.8,
    1.6,
    3.2,
    6.4,
    12.8,
    25.6,
    51.2,
    102.4,
    204.8,
    409.6,
)
"""Buckets of rollout durations, in seconds."""
CALL_BUCKETS: Final = tuple(float(2**power) for power in range(11))
"""Buckets of calls of one rollout."""
TOKEN_BUCKETS: Final = tuple(float(4**power) for power in range(14))
"""Advised buckets of token counts."""

_GENAI_COMMON: Final[dict[str, Attribute]] = {
    "gen_ai.operation.name": Attribute(
        "string", "required", "`chat`, `text_completion` or `invoke_agent`.", BOTH, OPERATIONS
    ),
    "gen_ai.provider.name": Attribute(
        "string",
        "required",
        "Who answered; see the provider rules.",
        INFERENCE,
        PROVIDERS,
    ),
    "gen_ai.agent.name": Attribute("string", "conditional", "Agent of the rollout.", AGENT),
    "gen_ai.request.model": Attribute(
        "string", "conditional", "Model as the caller asked for it.", BOTH
    ),
    "gen_ai.conversation.id": Attribute(
        "string",
        "conditional",
        "Session that the caller named: a session header or `conversation`.",
        BOTH,
    ),
    "gen_ai.output.type": Attribute(
        "string",
        "conditional",
        "Format that the request asks for.",
        BOTH,
        ("text", "json", "image", "speech"),
    ),
    "gen_ai.request.choice.count": Attribute("int", "conditional", "`n`, where it is not 1.", BOTH),
    "gen_ai.request.seed": Attribute("int", "conditional", "Seed as sent.", BOTH),
    "gen_ai.request.stream": Attribute(
        "boolean", "conditional", "True for streams, else absent.", INFERENCE
    ),
    "gen_ai.request.top_k": Attribute("int", "conditional", "Decoding top-k as sent."),
    "gen_ai.request.max_tokens": Attribute(
        "int", "recommended", "Most tokens to generate, as sent.", BOTH
    ),
    "gen_ai.request.temperature": Attribute("double", "recommended", "As sent.", BOTH),
    "gen_ai.request.top_p": Attribute("double", "recommended", "As sent.", BOTH),
    "gen_ai.request.frequency_penalty": Attribute("double", "recommended", "As sent.", BOTH),
    "gen_ai.request.presence_penalty": Attribute("double", "recommended", "As sent.", BOTH),
    "gen_ai.request.stop_sequences": Attribute("string[]", "recommended", "As sent.", BOTH),
    "gen_ai.response.id": Attribute("string", "recommended", "Id of the response."),
    "gen_ai.response.model": Attribute("string", "recommended", "Model that answered."),
    "gen_ai.response.finish_reasons": Attribute(
        "string[]",
        "recommended",
        "One per choice as the engine said it; `error` where one is missing because the call failed.",
        BOTH,
    ),
    "gen_ai.response.time_to_first_chunk": Attribute(
        "double", "recommended", "Streams only: request to first chunk, in seconds."
    ),
    "gen_ai.usage.input_tokens": Attribute(
        "int", "recommended", "All input tokens, cached ones included.", BOTH
    ),
    "gen_ai.usage.output_tokens": Attribute(
        "int", "recommended", "All output tokens, reasoning included.", BOTH
    ),
    "gen_ai.usage.cache_read.input_tokens": Attribute(
        "int", "recommended", "Input tokens read from a cache; absent when 0."
    ),
    "gen_ai.usage.reasoning.output_tokens": Attribute(
        "int", "recommended", "Output tokens spent on reasoning; absent when 0."
    ),
    "gen_ai.system_instructions": Attribute(
        "any", "opt-in", "Instructions given apart from the messages.", BOTH
    ),
    "gen_ai.input.messages": Attribute("any", "opt-in", "Input messages.", BOTH),
    "gen_ai.output.messages": Attribute("any", "opt-in", "Output messages.", BOTH),
    "gen_ai.tool.definitions": Attribute("any", "opt-in", "Tools offered to the model.", BOTH),
    "openai.api.type": Attribute(
        "string",
        "recommended",
        "API of OpenAI that was called.",
        INFERENCE,
        ("chat_completions", "responses"),
    ),
    "openai.request.service_tier": Attribute(
        "string", "conditional", "Tier asked for, where not auto.", INFERENCE
    ),
    "openai.response.service_tier": Attribute("string", "conditional", "Tier that answered."),
    "openai.response.system_fingerprint": Attribute(
        "string", "recommended", "Fingerprint of the answering system."
    ),
}

_CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
_CACHE_CREATION: Final = "gen_ai.usage.cache_creation.input_tokens"
_OLDER_NAMES: Final = {
    "gen_ai.system": "gen_ai.provider.name",
    "gen_ai.usage.prompt_tokens": "gen_ai.usage.input_tokens",
    "gen_ai.usage.completion_tokens": "gen_ai.usage.output_tokens",
    "gen_ai.prompt": "gen_ai.input.messages",
    "gen_ai.completion": "gen_ai.output.messages",
    "gen_ai.openai.request.response_format": "gen_ai.output.type",
    "gen_ai.openai.request.seed": "gen_ai.request.seed",
    "gen_ai.openai.request.service_tier": "openai.request.service_tier",
    "gen_ai.openai.response.service_tier": "openai.response.service_tier",
    "gen_ai.openai.response.system_fingerprint": "openai.response.system_fingerprint",
}

_NEW_METRICS: Final[dict[str, Instrument]] = {
    "gen_ai.client.inference.duration": Instrument(
        "histogram", "s", "Duration of model calls; equals the span's.", DURATION_BUCKETS
    ),
    "gen_ai.client.inference.time_to_first_chunk": Instrument(
        "histogram", "s", "Streams: request to first chunk.", DURATION_BUCKETS
    ),
    "gen_ai.client.inference.time_per_output_chunk": Instrument(
        "histogram", "s", "Streams: mean time per chunk after the first.", DURATION_BUCKETS
    ),
    "gen_ai.client.inference.usage.input_tokens": Instrument(
        "counter", "{token}", "Input tokens, cached ones included."
    ),
    "gen_ai.client.inference.usage.output_tokens": Instrument(
        "counter", "{token}", "Output tokens, reasoning included."
    ),
    "gen_ai.client.inference.usage.cache_read.input_tokens": Instrument(
        "counter", "{token}", "Input tokens read from a cache."
    ),
    "gen_ai.client.inference.usage.cache_write.input_tokens": Instrument(
        "counter", "{token}", "Input tokens written to a cache."
    ),
    "gen_ai.client.inference.usage.reasoning.output_tokens": Instrument(
        "counter", "{token}", "Output tokens spent on reasoning."
    ),
    "gen_ai.client.inference.operation.input_tokens": Instrument(
        "histogram", "{token}", "Input tokens of a call.", TOKEN_BUCKETS
    ),
    "gen_ai.client.inference.operation.output_tokens": Instrument(
        "histogram", "{token}", "Output tokens of a call.", TOKEN_BUCKETS
    ),
    "gen_ai.invoke_agent.duration": Instrument(
        "histogram", "s", "Duration of rollouts.", AGENT_DURATION_BUCKETS
    ),
    "gen_ai.invoke_agent.inference_calls": Instrument(
        "histogram", "{inference_call}", "Model calls of a rollout, failed ones too.", CALL_BUCKETS
    ),
    "gen_ai.invoke_agent.tool_calls": Instrument(
        "histogram",
        "{tool_call}",
        "Tool calls that the model asked for in a rollout.",
        CALL_BUCKETS,
    ),
}
_OLD_METRICS: Final[dict[str, Instrument]] = {
    "gen_ai.client.operation.duration": Instrument(
        "histogram", "s", "Duration of model calls.", DURATION_BUCKETS
    ),
    "gen_ai.client.operation.time_to_first_chunk": Instrument(
        "histogram", "s", "Streams: request to first chunk.", DURATION_BUCKETS
    ),
    "gen_ai.client.operation.time_per_output_chunk": Instrument(
        "histogram", "s", "Streams: mean time per chunk after the first.", DURATION_BUCKETS
    ),
    "gen_ai.client.token.usage": Instrument(
        "histogram", "{token}", "Tokens of a call by `gen_ai.token.type`.", TOKEN_BUCKETS
    ),
}

GENAI_0_1: Final = Convention(
    name="genai-0.1",
    # Nobody has published a schema file of v0.1.0. Its contributing guide gives releases URLs of this form; manifests between releases say `gen-ai-dev`.
    schema_url="https://opentelemetry.io/schemas/gen-ai/0.1.0",
    attributes=MappingProxyType(
        {
            **_GENAI_COMMON,
            _CACHE_WRITE: Attribute(
                "int", "recommended", "Input tokens written to a cache; absent when 0."
            ),
            "gen_ai.request.reasoning.level": Attribute(
                "string", "recommended", "Reasoning effort as sent."
            ),
            "gen_ai.request.previous_response.id": Attribute(
                "string", "recommended", "`previous_response_id`."
            ),
            "gen_ai.conversation.compacted": Attribute(
                "boolean", "recommended", "True where the context holds a compaction, else absent."
            ),
            **{
                f"gen_ai.usage.{modality}.{part}": Attribute(
                    "int",
                    "recommended",
                    f"{modality.capitalize()} part of the {meaning}; absent when 0 or not told.",
                )
                for modality in ("text", "image", "audio")
                for part, meaning in (
                    ("input_tokens", "input tokens"),
                    ("cache_read.input_tokens", "input tokens read from a cache"),
                    ("output_tokens", "output tokens"),
                )
            },
        }
    ),
    deprecated=MappingProxyType({**_OLDER_NAMES, _CACHE_CREATION: _CACHE_WRITE}),
    metrics=MappingProxyType(_NEW_METRICS),
)

GENAI_1_41: Final = Convention(
    name="genai-1.41",
    schema_url="https://opentelemetry.io/schemas/1.41.0",
    attributes=MappingProxyType(
        {
            **_GENAI_COMMON,
            _CACHE_CREATION: Attribute(
                "int", "recommended", "Input tokens written to a cache; absent when 0."
            ),
            "gen_ai.request.top_k": Attribute("double", "conditional", "Decoding top-k as sent."),
        }
    ),
    renames=MappingProxyType({_CACHE_WRITE: _CACHE_CREATION}),
    deprecated=MappingProxyType(_OLDER_NAMES),
    metrics=MappingProxyType(_OLD_METRICS),
    doubles=frozenset({"gen_ai.request.top_k"}),
)
