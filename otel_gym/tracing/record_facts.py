"""What a record says beside request and response: engine, stream, sampling, resend, outcome and caller, as attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.tracing.reading import count, mapping, number, sequence, strings, text, whole
from otel_gym.tracing.request_facts import conversation_of
from otel_gym.tracing.span_data import AttributeValue


def add_conversation(
    facts: dict[str, AttributeValue], raw: Mapping[str, Any], request: Mapping[str, Any]
) -> None:
    conversation = text(raw.get("client_session_id"))
    if conversation is None and "conversation" in request:
        conversation = conversation_of(request)
    if conversation is not None:
        facts["gen_ai.conversation.id"] = conversation


def add_engine(facts: dict[str, AttributeValue], raw: Mapping[str, Any]) -> None:
    engine = mapping(raw.get("engine"))
    if (address := text(engine.get("address"))) is not None:
        facts["server.address"] = address
        if (port := whole(engine.get("port"))) is not None:
            facts["server.port"] = port


def add_stream(
    facts: dict[str, AttributeValue], raw: Mapping[str, Any], request: Mapping[str, Any]
) -> None:
    stream = mapping(raw.get("stream"))
    if not stream and ("schema" in raw or not _seems_streamed(raw, request)):
        return
    first = number(raw.get("latency_ttft_ms"))
    if first is not None:
        facts["gen_ai.response.time_to_first_chunk"] = first / 1000.0
    if (chunks := count(stream.get("chunks"))) is not None:
        facts["otel_gym.stream.chunks"] = chunks
    if stream:
        facts["otel_gym.stream.terminal"] = text(stream.get("terminal")) or "none"


def _seems_streamed(raw: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Whether a record of NeMo Gym, which does not say so, is of a stream: it was asked for one, and answered."""
    status = raw.get("status_code")
    return request.get("stream") is True and type(status) is int and 200 <= status < 300


def add_sampling(facts: dict[str, AttributeValue], sampling: Mapping[str, Any]) -> None:
    pinned = sampling.get("pinned")
    if names := strings(sorted(pinned) if type(pinned) is dict else sequence(pinned)):
        facts["otel_gym.sampling.pinned"] = names
    overridden = sampling.get("overridden")
    names = strings(sorted(overridden) if type(overridden) is dict else sequence(overridden))
    if names:
        facts["otel_gym.sampling.overridden"] = names
        requested = mapping(sampling.get("requested"))
        for name in names:
            value = requested.get(name)
            if type(value) is bool:
                facts[f"otel_gym.sampling.requested.{name}"] = value
            elif (wanted := text(value)) is not None:
                facts[f"otel_gym.sampling.requested.{name}"] = wanted
            elif (integer := whole(value)) is not None:
                facts[f"otel_gym.sampling.requested.{name}"] = integer
            elif type(value) is float:
                facts[f"otel_gym.sampling.requested.{name}"] = value
    if (digest := text(sampling.get("outbound_sha256"))) is not None:
        facts["otel_gym.sampling.outbound_sha256"] = digest


def add_resend(facts: dict[str, AttributeValue], resend: Mapping[str, Any]) -> None:
    if (times := count(resend.get("count"))) is not None:
        facts["otel_gym.resend.count"] = times
    if (of := text(resend.get("of"))) is not None:
        facts["otel_gym.resend.of"] = of
    if (reason := text(resend.get("reason"))) is not None:
        facts["otel_gym.resend.reason"] = reason


def add_upstream(facts: dict[str, AttributeValue], raw: Mapping[str, Any]) -> None:
    if type(raw["upstream_attempted"]) is bool:
        facts["otel_gym.upstream.attempted"] = raw["upstream_attempted"]
    status = whole(raw.get("upstream_status_code"))
    if status is not None and status != raw.get("status_code"):
        facts["otel_gym.upstream.status_code"] = status
    if (source := text(raw.get("response_source"))) is not None:
        facts["otel_gym.response.source"] = source
    if (reason := text(raw.get("local_response_reason"))) is not None:
        facts["otel_gym.response.local_reason"] = reason


def add_client(facts: dict[str, AttributeValue], client: Mapping[str, Any]) -> None:
    if (agent := text(client.get("agent_id"))) is not None:
        facts["otel_gym.client.agent.id"] = agent
    if (parent := text(client.get("parent_id"))) is not None:
        facts["otel_gym.client.parent.id"] = parent
    if (kind := text(client.get("request_kind"))) is not None:
        facts["otel_gym.client.request_kind"] = kind
    for name, value in list(mapping(client.get("headers")).items())[:64]:
        if values := strings(value if type(value) is list else [value]):
            facts[f"http.request.header.{text(name)}"] = values
    for name, value in list(mapping(client.get("baggage")).items())[:64]:
        if (member := text(value)) is not None:
            facts[f"otel_gym.baggage.{text(name)}"] = member
