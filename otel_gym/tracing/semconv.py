"""The semantic conventions as data: one table per version.

`genai-0.1`: https://github.com/open-telemetry/semantic-conventions-genai v0.1.0. `genai-1.41`: the last core release with GenAI definitions, v1.41.1.
`openinference`: https://github.com/Arize-ai/openinference semantic conventions 0.1. Everything the bridge computes has a canonical name, which is its
`genai-0.1` name; a table says under which name (if any) its version knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

Type: TypeAlias = Literal["string", "int", "double", "boolean", "string[]", "any"]
Level: TypeAlias = Literal["required", "conditional", "recommended", "opt-in"]
SpanType: TypeAlias = Literal["inference", "invoke_agent"]

BOTH: Final[frozenset[SpanType]] = frozenset({"inference", "invoke_agent"})
INFERENCE: Final[frozenset[SpanType]] = frozenset({"inference"})
AGENT: Final[frozenset[SpanType]] = frozenset({"invoke_agent"})


@dataclass(frozen=True, slots=True)
class Attribute:
    """What a convention says of one attribute."""

    type: Type
    level: Level
    meaning: str
    spans: frozenset[SpanType] = INFERENCE
    """Span types that may carry it."""
    enum: tuple[str, ...] = ()
    """Well-known values; another value is allowed where `open_enum`."""
    open_enum: bool = True


@dataclass(frozen=True, slots=True)
class Instrument:
    """What a convention says of one metric."""

    kind: Literal["histogram", "counter"]
    unit: str
    meaning: str
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Convention:
    """One version of a convention."""

    name: str
    schema_url: str
    attributes: Mapping[str, Attribute]
    renames: Mapping[str, str] = field(default_factory=dict)
    """Canonical name -> the name in this version; a canonical name that is neither here nor in `attributes` is unknown to it."""
    deprecated: Mapping[str, str] = field(default_factory=dict)
    """Names that this version forbids -> what replaced them."""
    metrics: Mapping[str, Instrument] = field(default_factory=dict)
    """Metric name -> its instrument."""
    doubles: frozenset[str] = frozenset()
    """Canonical integer attributes that this version types as double."""


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

COMMON: Final[Mapping[str, Attribute]] = MappingProxyType(
    {
        "error.type": Attribute(
            "string", "conditional", "Error category of a failed call or rollout.", BOTH
        ),
        "server.address": Attribute("string", "recommended", "Host of the engine."),
        "server.port": Attribute("int", "conditional", "Port of the engine, also when it is 443."),
        "http.response.status_code": Attribute(
            "int", "conditional", "Status that the caller got, where an answer began."
        ),
    }
)
"""Attributes of the core conventions that every version shares."""

TEMPLATES: Final[Mapping[str, Attribute]] = MappingProxyType(
    {
        "http.request.header.": Attribute(
            "string[]", "opt-in", "Request headers named in `otel_gym.span_headers`."
        ),
        "otel_gym.baggage.": Attribute(
            "string", "opt-in", "Baggage members named in `otel_gym.span_baggage`."
        ),
        "otel_gym.sampling.requested.": Attribute(
            "any", "conditional", "Value that the caller asked for and the engine did not get."
        ),
    }
)
"""Attributes whose name ends with a key of their own."""

OWN: Final[Mapping[str, Attribute]] = MappingProxyType(
    {
        "otel_gym.run.id": Attribute("string", "required", "Run of the capture directory.", BOTH),
        "otel_gym.rollout.id": Attribute("string", "required", "Rollout of the call.", BOTH),
        "otel_gym.task.index": Attribute(
            "int", "conditional", "Task, where the rollout id says it.", BOTH
        ),
        "otel_gym.rollout.index": Attribute(
            "int", "conditional", "Repeat of the task, where the rollout id says it.", BOTH
        ),
        "otel_gym.attempt.index": Attribute(
            "int", "conditional", "Attempt, 0 for the first, where the rollout id says it.", BOTH
        ),
        "otel_gym.model_call.id": Attribute("string", "required", "`model_call_id` of the record."),
        "otel_gym.record.file": Attribute(
            "string", "required", "File that holds the record.", BOTH
        ),
        "otel_gym.record.offset": Attribute(
            "int", "required", "Where the record's line begins in its file, in bytes.", INFERENCE
        ),
        "otel_gym.dialect": Attribute(
            "string",
            "required",
            "API that was spoken.",
            INFERENCE,
            ("responses", "chat", "messages", "completions"),
        ),
        "otel_gym.model_server.name": Attribute(
            "string", "recommended", "Model server that captured the call."
        ),
        "otel_gym.error.code": Attribute("string", "recommended", "Error code of the provider."),
        "otel_gym.exception.type": Attribute(
            "string", "recommended", "Class of the exception that left the application."
        ),
        "otel_gym.cancelled": Attribute(
            "boolean", "conditional", "True where the caller gave the call up."
        ),
        "otel_gym.response.truncated": Attribute(
            "boolean", "conditional", "True where the output was cut: by a limit, or on the wire."
        ),
        "otel_gym.response.status": Attribute(
            "string", "recommended", "`status` of a Responses answer."
        ),
        "otel_gym.stream.chunks": Attribute("int", "recommended", "Body chunks of a stream."),
        "otel_gym.stream.terminal": Attribute(
            "string",
            "recommended",
            "How a stream ended.",
            INFERENCE,
            ("complete", "incomplete", "error", "none"),
        ),
        "otel_gym.tool_calls.count": Attribute(
            "int", "recommended", "Tool calls in the response; absent when 0.", BOTH
        ),
        "otel_gym.tool_calls.names": Attribute(
            "string[]", "recommended", "Names of the tools called, in order."
        ),
        "otel_gym.resend.count": Attribute(
            "int", "conditional", "How many times the client had sent this request before."
        ),
        "otel_gym.resend.of": Attribute(
            "string", "conditional", "`model_call_id` of the call that this one repeats."
        ),
        "otel_gym.resend.reason": Attribute(
            "string", "conditional", "How the repeat was recognised.", INFERENCE
        ),
        "otel_gym.sampling.pinned": Attribute(
            "string[]", "conditional", "Sampling parameters that the server pins."
        ),
        "otel_gym.sampling.overridden": Attribute(
            "string[]",
            "conditional",
            "Pinned parameters for which the caller wanted another value.",
        ),
        "otel_gym.sampling.outbound_sha256": Attribute(
            "string", "recommended", "Digest of the body that the engine got."
        ),
        "otel_gym.upstream.attempted": Attribute(
            "boolean", "conditional", "Whether the engine was asked."
        ),
        "otel_gym.upstream.status_code": Attribute(
            "int", "conditional", "Status of the engine, where it differs from the caller's."
        ),
        "otel_gym.response.source": Attribute(
            "string", "conditional", "Who made the answer.", INFERENCE, ("upstream", "local")
        ),
        "otel_gym.response.local_reason": Attribute(
            "string", "conditional", "Why the server answered by itself."
        ),
        "otel_gym.client.agent.id": Attribute(
            "string", "conditional", "Agent or sub-agent, from the harness's header."
        ),
        "otel_gym.client.parent.id": Attribute(
            "string", "conditional", "Parent session or thread, from the harness's header."
        ),
        "otel_gym.client.request_kind": Attribute(
            "string", "conditional", "Kind of request, from the harness's header."
        ),
        "otel_gym.content.cut_bytes": Attribute(
            "int", "conditional", "Bytes of content replaced by digest, size and pointer.", BOTH
        ),
        "otel_gym.reward": Attribute("double", "conditional", "Reward of the rollout.", AGENT),
        "otel_gym.rollout.synthesized": Attribute(
            "boolean",
            "conditional",
            "True for a root that was made from the calls, for want of a rollout record.",
            AGENT,
        ),
        "otel_gym.rollout.error": Attribute(
            "string", "conditional", "What went wrong in the rollout.", AGENT
        ),
        "otel_gym.rollout.model_calls": Attribute(
            "int", "recommended", "Model calls of the rollout.", AGENT
        ),
        "otel_gym.rollout.failed_model_calls": Attribute(
            "int", "recommended", "Model calls of the rollout that failed.", AGENT
        ),
    }
)
"""Attributes of the bridge itself."""

GENAI_0_1: Final = Convention(
    name="genai-0.1",
    # v0.1.0 publishes no URL; this is the form that its registry manifest gives to a release.
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
            "gen_ai.usage.audio.input_tokens": Attribute(
                "int", "recommended", "Audio part of the input tokens; absent when 0."
            ),
            "gen_ai.usage.audio.output_tokens": Attribute(
                "int", "recommended", "Audio part of the output tokens; absent when 0."
            ),
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
            _CACHE_WRITE: "llm.token_count.prompt_details.cache_write",
            "gen_ai.usage.reasoning.output_tokens": "llm.token_count.completion_details.reasoning",
            "gen_ai.conversation.id": "session.id",
            "gen_ai.agent.name": "agent.name",
        }
    ),
)

CONVENTIONS: Final[Mapping[str, Convention]] = MappingProxyType(
    {table.name: table for table in (GENAI_0_1, GENAI_1_41, OPENINFERENCE)}
)
"""Every version that `otel_gym.semconv` may name."""

SCOPE_NAME: Final = "otel_gym"


@dataclass(frozen=True, slots=True)
class Naming:
    """How the canonical attributes of a span are named under a choice of versions."""

    versions: tuple[str, ...]
    schema_url: str
    names: Mapping[str, tuple[str, ...]]
    """Canonical name -> all the names to write; absent: as it is."""
    hidden: frozenset[str]
    """Canonical names that none of the versions knows."""
    doubles: frozenset[str]
    openinference: bool

    def apply(self, facts: Mapping[str, object]) -> dict[str, object]:
        """`facts` under the names of the chosen versions, in the same order."""
        named: dict[str, object] = {}
        names = self.names
        for key, value in facts.items():
            also = names.get(key)
            if also is None:
                named[key] = value
            else:
                for name in also:
                    named[name] = value
        return named


@lru_cache(maxsize=16)
def naming(versions: tuple[str, ...]) -> Naming:
    """The naming of `versions`: the first is primary, the rest add the names in which they differ."""
    chosen = [CONVENTIONS[version] for version in versions]
    names: dict[str, tuple[str, ...]] = {}
    for canonical in sorted({key for table in CONVENTIONS.values() for key in _canonical(table)}):
        written: list[str] = []
        for table in chosen:
            name = table.renames.get(canonical)
            if name is None and canonical in table.attributes:
                name = canonical
            if name is not None and name not in written:
                written.append(name)
        if written != [canonical]:
            names[canonical] = tuple(written)
    return Naming(
        versions=versions,
        schema_url=chosen[0].schema_url,
        names=MappingProxyType(names),
        hidden=frozenset(key for key, written in names.items() if not written),
        doubles=chosen[0].doubles,
        openinference="openinference" in versions,
    )


def known_attributes(versions: Iterable[str]) -> dict[str, Attribute]:
    """Every attribute that a span may carry under `versions`; where two type it differently, the first counts."""
    known: dict[str, Attribute] = {}
    for version in versions:
        for name, attribute in CONVENTIONS[version].attributes.items():
            known.setdefault(name, attribute)
    return {**known, **COMMON, **OWN}


def deprecated_names(versions: Iterable[str]) -> dict[str, str]:
    """Names that no chosen version allows -> what replaced them."""
    tables = [CONVENTIONS[version] for version in versions]
    allowed = {name for table in tables for name in table.attributes}
    return {
        old: new for table in tables for old, new in table.deprecated.items() if old not in allowed
    }


def _canonical(table: Convention) -> set[str]:
    """The canonical names that `table` speaks of."""
    if table.name == "openinference":
        return set(table.renames)
    renamed = set(table.renames.values())
    return {name for name in table.attributes if name not in renamed} | set(table.renames)
