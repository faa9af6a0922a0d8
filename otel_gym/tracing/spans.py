"""A record seen as a span: pure functions, no clock, no I/O.

Live export, later export from files and the viewer all call these, so that they can never disagree. Conventions: see `otel_gym.tracing.semconv`; the
attributes one by one: `docs/attributes.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_gym.correlation.run import Run
from otel_gym.correlation.trace_ids import root_span_id, span_id, trace_id
from otel_gym.dialects.usage import read_usage
from otel_gym.tracing import openinference
from otel_gym.tracing.content import add_content
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.providers import provider_name
from otel_gym.tracing.reading import MAX_ITEMS, count, mapping, number, text, whole
from otel_gym.tracing.record_facts import (
    add_client,
    add_conversation,
    add_engine,
    add_resend,
    add_sampling,
    add_stream,
    add_upstream,
)
from otel_gym.tracing.request_facts import OPERATIONS, add_request, is_compacted
from otel_gym.tracing.response_facts import (
    LIMIT_REASONS,
    add_modalities,
    add_openai_response,
    add_response,
    add_usage,
    error_of,
    finish_reasons_of,
    tool_call_names,
)
from otel_gym.tracing.semconv import naming
from otel_gym.tracing.span_data import (
    CLIENT,
    ERROR,
    INTERNAL,
    NO_STATUS,
    AttributeValue,
    Event,
    Link,
    SpanData,
    Status,
)
from otel_gym.tracing.trace_place import LINK_KIND, place_in_trace, rollout_names
from otel_gym.tracing.training import add_training

NOT_FAILURES: Final = frozenset({"incomplete", "cancelled"})
"""Error categories of calls that did not fail: cut by a limit, or given up by the caller."""

_ATTEMPT: Final = re.compile(r"(?P<base>.+)-a(?P<attempt>[1-9]\d*)", re.ASCII)
_OPENAI: Final = frozenset({"openai", "azure.ai.openai"})


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a record stands."""

    rollout_id: str
    file_name: str
    """Name of the capture file, without its directory."""
    offset_bytes: int
    """Where the line begins in the (uncompressed) file."""


def span_from_record(
    raw: Mapping[str, Any], place: RecordPlace, run: Run, options: SpanOptions
) -> SpanData:
    """The span of one raw record. Never raises for what a record holds: a value of a wrong type is left out."""
    names = rollout_names(run.run_id, place.rollout_id)
    request = mapping(raw.get("request"))
    response = mapping(raw.get("response"))
    dialect = raw.get("dialect")
    if type(dialect) is not str:
        dialect = "chat"
    category = text(raw.get("error_category"))
    provider = provider_name(raw)
    sampling = mapping(raw.get("sampling"))
    openai = provider in _OPENAI

    facts: dict[str, AttributeValue] = {
        "gen_ai.operation.name": OPERATIONS.get(dialect, "chat"),
        "gen_ai.provider.name": provider,
    }
    add_request(facts, request, dialect, mapping(sampling.get("effective")), openai)
    add_conversation(facts, raw, request)
    if is_compacted(dialect, request, response):
        facts["gen_ai.conversation.compacted"] = True
    add_engine(facts, raw)
    _add_outcome(facts, raw, response, category)
    if response:
        add_response(facts, response)
        if openai:
            add_openai_response(facts, response)
        add_usage(facts, read_usage(dialect, response))
        add_modalities(facts, response)
        add_training(facts, response)
        called = tool_call_names(response)
        if called:
            facts["otel_gym.tool_calls.count"] = len(called)
            facts["otel_gym.tool_calls.names"] = called[:64]
    add_stream(facts, raw, request)
    facts.update(names.facts)
    model_call_id = str(raw.get("model_call_id"))
    facts["otel_gym.model_call.id"] = text(model_call_id) or ""
    facts["otel_gym.dialect"] = text(dialect) or ""
    facts["otel_gym.record.file"] = place.file_name
    facts["otel_gym.record.offset"] = place.offset_bytes
    if "model_ref" in raw and (server := text(mapping(raw["model_ref"]).get("name"))) is not None:
        facts["otel_gym.model_server.name"] = server
    if sampling:
        add_sampling(facts, sampling)
    if "resend" in raw:
        add_resend(facts, mapping(raw["resend"]))
    if "upstream_attempted" in raw:
        add_upstream(facts, raw)
    if "client" in raw:
        add_client(facts, mapping(raw["client"]))

    start_ns = unix_ns(raw.get("started_at"))
    end_ns = max(start_ns, unix_ns(raw.get("completed_at")))
    named = naming(options.semconv)
    for key in named.doubles:
        if key in facts:
            facts[key] = float(facts[key])  # type: ignore[arg-type] # an integer attribute by its table
    attributes = named.apply(facts)
    if named.openinference:
        openinference.add_call(attributes, facts)
    model = facts.get("gen_ai.request.model")
    span = SpanData(
        name=f"{facts['gen_ai.operation.name']} {model}"
        if model
        else str(facts["gen_ai.operation.name"]),
        kind=CLIENT,
        trace_id=names.trace_id,
        span_id=span_id(model_call_id),
        parent_span_id=names.root_span_id,
        start_ns=start_ns,
        end_ns=end_ns,
        attributes=attributes,
        status=_status(raw, response, category),
    )
    if "trace" in raw:
        place_in_trace(span, mapping(raw["trace"]), names)
    if options.content != "NO_CONTENT":
        add_content(span, dialect, request, response, place, options)
    return span


def rollout_span(record: Mapping[str, Any], run: Run, options: SpanOptions) -> SpanData:
    """The root span of a rollout: `invoke_agent <agent>`, from the content of its `<rollout_id>.rollout.json`."""
    rollout_id = str(record.get("rollout_id"))
    names = rollout_names(run.run_id, rollout_id)
    totals = mapping(record.get("totals"))
    agent = text(record.get("agent"))
    facts: dict[str, AttributeValue] = {"gen_ai.operation.name": "invoke_agent"}
    if agent is not None:
        facts["gen_ai.agent.name"] = agent
    if (model := text(record.get("model"))) is not None:
        facts["gen_ai.request.model"] = model
    for key in ("input_tokens", "output_tokens"):
        if (tokens := count(totals.get(key))) is not None:
            facts[f"gen_ai.usage.{key}"] = tokens
    error = text(record.get("error"))
    if error is not None:
        facts["error.type"] = text(record.get("error_type")) or "_OTHER"
        facts["otel_gym.rollout.error"] = error
    facts.update(names.facts)
    for key in ("task", "rollout", "attempt"):
        if (index := count(record.get(f"{key}_index"))) is not None:
            facts[f"otel_gym.{key}.index"] = index
    facts["otel_gym.record.file"] = f"{rollout_id}.rollout.json"
    for key in ("model_calls", "failed_model_calls"):
        if (calls := count(totals.get(key))) is not None:
            facts[f"otel_gym.rollout.{key}"] = calls
    if tools := count(totals.get("tool_calls")):
        facts["otel_gym.tool_calls.count"] = tools
    reward = number(record.get("reward"))
    if reward is not None:
        facts["otel_gym.reward"] = reward
    if record.get("synthesized") is True:
        facts["otel_gym.rollout.synthesized"] = True

    start_ns = unix_ns(record.get("started_at"))
    end_ns = max(start_ns, unix_ns(record.get("completed_at")))
    named = naming(options.semconv)
    attributes = named.apply(facts)
    if named.openinference:
        openinference.add_rollout(attributes, facts)
    span = SpanData(
        name=f"invoke_agent {agent}" if agent is not None else "invoke_agent",
        kind=INTERNAL,
        trace_id=names.trace_id,
        span_id=names.root_span_id,
        parent_span_id="",
        start_ns=start_ns,
        end_ns=end_ns,
        attributes=attributes,
        status=Status(ERROR, error) if error is not None else NO_STATUS,
    )
    before = text(record.get("previous_rollout_id")) or previous_attempt(rollout_id)
    if before is not None:
        span.links.append(
            Link(
                trace_id(run.run_id, before),
                root_span_id(run.run_id, before),
                attributes={LINK_KIND: "attempt", "otel_gym.rollout.id": before},
            )
        )
    if reward is not None:
        span.events.append(
            Event(
                "gen_ai.evaluation.result",
                end_ns,
                {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": reward},
            )
        )
    return span


def previous_attempt(rollout_id: str) -> str | None:
    """The rollout id of the attempt before, or null for a first attempt."""
    match = _ATTEMPT.fullmatch(rollout_id)
    if match is None:
        return None
    before = int(match["attempt"]) - 1
    return f"{match['base']}-a{before}" if before else match["base"]


def unix_ns(seconds: object) -> int:
    """Unix seconds of a record as nanoseconds; 0 for what is no time.

    Rounded to whole microseconds: a double holds no more of a present-day time, and backends such as Jaeger keep no more.
    """
    value = number(seconds)
    return round(value * 1e6) * 1000 if value is not None and 0 <= value < 9e9 else 0


def _add_outcome(
    facts: dict[str, AttributeValue],
    raw: Mapping[str, Any],
    response: Mapping[str, Any],
    category: str | None,
) -> None:
    """Adds status code, error type, finish reasons and what cut the output."""
    if (code := whole(raw.get("status_code"))) is not None:
        facts["http.response.status_code"] = code
    failed = category is not None and category not in NOT_FAILURES
    if failed and category is not None:
        facts["error.type"] = category
        raised = mapping(raw.get("exception"))
        if (exception := text(raised.get("type"))) is not None:
            facts["otel_gym.exception.type"] = exception
        if (provider_code := error_of(response)[0]) is not None:
            facts["otel_gym.error.code"] = provider_code
    if category == "cancelled":
        facts["otel_gym.cancelled"] = True
    reasons = finish_reasons_of(response)
    shown = [reason or "error" for reason in reasons]
    if category is None:
        # Nobody said a reason that is missing after a success, and none is invented.
        shown = [] if None in reasons else shown
    elif category != "incomplete":
        # Of a call that went wrong each choice that was asked for has one.
        asked = facts.get("gen_ai.request.choice.count", 1)
        shown += ["error"] * (min(asked if type(asked) is int else 1, MAX_ITEMS) - len(shown))
    if shown:
        facts["gen_ai.response.finish_reasons"] = shown
    if category == "stream_truncated" or not LIMIT_REASONS.isdisjoint(reasons):
        facts["otel_gym.response.truncated"] = True


def _status(raw: Mapping[str, Any], response: Mapping[str, Any], category: str | None) -> Status:
    """ERROR with the provider's own message, or the exception's, for a failed call, else unset."""
    if category is None or category in NOT_FAILURES:
        return NO_STATUS
    message = error_of(response)[1] or text(mapping(raw.get("exception")).get("message"))
    return Status(ERROR, message or "")
