"""Attributes that do not depend on the chosen conventions: those of the core, and our own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from otel_gym.tracing.convention import AGENT, BOTH, INFERENCE, Attribute

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
        "otel_gym.training.prompt_tokens": Attribute(
            "int", "conditional", "Prompt token ids that the response carries."
        ),
        "otel_gym.training.generation_tokens": Attribute(
            "int", "conditional", "Generated token ids that the response carries."
        ),
        "otel_gym.training.log_probs": Attribute(
            "int", "conditional", "Generation log probabilities that the response carries."
        ),
        "otel_gym.training.routed_experts": Attribute(
            "int", "conditional", "Tokens whose routed experts the response carries."
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
