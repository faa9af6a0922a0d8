"""A record as a span."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.capture.record import build_model_call_record
from otel_gym.correlation.run import Run
from otel_gym.correlation.trace_ids import root_span_id, span_id, trace_id
from otel_gym.tracing.encode import encode_span
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.span_data import CLIENT, ERROR, INTERNAL, UNSET, SpanData
from otel_gym.tracing.spans import (
    RecordPlace,
    previous_attempt,
    rollout_span,
    span_from_record,
    unix_ns,
)
from tests.tracing.conformance import assert_conforms
from tests.tracing.records import BASE_TIME, REQUESTS, RESPONSES, call_id, gym_record

DEFAULT = SpanOptions()
TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def make(
    run: Run, rollout_id: str = "3-1", options: SpanOptions = DEFAULT, **record: Any
) -> SpanData:
    raw = gym_record(**record)
    place = RecordPlace(rollout_id, f"{rollout_id}.capture.jsonl", 4096)
    return span_from_record(raw, place, run, options)


def test_names_times_and_ids_follow_from_the_record(run: Run) -> None:
    """A record of NeMo Gym, without any key of ours, becomes a child of its rollout's root with the record's own times."""
    span = make(run, number=5)
    assert span.name == "chat qwen3-8b"
    assert span.kind == CLIENT
    assert span.trace_id == trace_id("run-1", "3-1")
    assert span.parent_span_id == root_span_id("run-1", "3-1")
    assert span.span_id == span_id(call_id(5)) == call_id(5)[:16]
    assert span.start_ns == 1_790_000_010_250_000_000
    assert span.end_ns - span.start_ns == 1_500_000_000
    assert span.attributes["otel_gym.record.file"] == "3-1.capture.jsonl"
    assert span.attributes["otel_gym.record.offset"] == 4096
    assert span.attributes["otel_gym.model_call.id"] == call_id(5)
    assert [span.attributes[f"otel_gym.{key}.index"] for key in ("task", "rollout", "attempt")] == [
        3,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (
            "chat",
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.temperature": 0.7,
                "gen_ai.request.top_p": 0.95,
                "gen_ai.request.max_tokens": 512,
                "gen_ai.request.seed": 7,
                "gen_ai.request.stop_sequences": ["END"],
                "gen_ai.response.id": "chatcmpl-1",
                "gen_ai.response.finish_reasons": ["tool_calls"],
                "gen_ai.usage.input_tokens": 120,
                "gen_ai.usage.output_tokens": 30,
                "gen_ai.usage.cache_read.input_tokens": 64,
                "gen_ai.usage.reasoning.output_tokens": 12,
                "openai.api.type": "chat_completions",
                "otel_gym.tool_calls.count": 1,
                "otel_gym.tool_calls.names": ["look"],
            },
        ),
        (
            "responses",
            {
                "gen_ai.request.max_tokens": 100,
                "gen_ai.request.reasoning.level": "high",
                "gen_ai.request.previous_response.id": "resp_0",
                "gen_ai.output.type": "json",
                "gen_ai.usage.reasoning.output_tokens": 5,
                "openai.api.type": "responses",
                "otel_gym.response.status": "completed",
                "otel_gym.tool_calls.names": ["look"],
            },
        ),
        (
            "messages",
            {
                "gen_ai.provider.name": "anthropic",
                "gen_ai.request.top_k": 40,
                "gen_ai.request.reasoning.level": "low",
                "gen_ai.response.finish_reasons": ["tool_use"],
                "gen_ai.usage.input_tokens": 117,
                "gen_ai.usage.cache_read.input_tokens": 100,
                "gen_ai.usage.cache_write.input_tokens": 7,
                "gen_ai.usage.cache_creation.input_tokens": 7,
                "otel_gym.tool_calls.names": ["look"],
            },
        ),
        (
            "completions",
            {
                "gen_ai.operation.name": "text_completion",
                "gen_ai.request.choice.count": 2,
                "gen_ai.response.finish_reasons": ["length", "stop"],
                "otel_gym.response.truncated": True,
            },
        ),
    ],
)
def test_each_dialect_gives_its_attributes(
    run: Run, dialect: str, expected: dict[str, Any]
) -> None:
    """Parameters, ids, finish reasons, usage and tool calls are read by the rules of each dialect."""
    span = make(run, dialect=dialect)
    assert {key: span.attributes.get(key) for key in expected} == expected
    assert span.status.code == UNSET


def test_a_part_of_usage_that_is_zero_is_left_out(run: Run) -> None:
    """The convention wants breakdown counts only where they are not 0; a Responses answer ends with its final status."""
    attributes = make(run, dialect="responses").attributes
    assert attributes["gen_ai.response.finish_reasons"] == ["completed"]
    assert "gen_ai.usage.cache_read.input_tokens" not in attributes


def test_usage_that_was_not_reported_is_absent(run: Run) -> None:
    """A stream without usage gives no token attributes, not zeros."""
    response = {key: value for key, value in RESPONSES["chat"].items() if key != "usage"}
    attributes = make(run, response=response).attributes
    assert not [key for key in attributes if key.startswith("gen_ai.usage.")]


@pytest.mark.parametrize("dialect", list(REQUESTS))
def test_tokens_and_tool_calls_equal_the_derived_record(run: Run, dialect: str) -> None:
    """The span and the derived record of one line never disagree about tokens, model, id and tool calls."""
    raw = gym_record(1, dialect)
    record = build_model_call_record(raw, 0)
    attributes = make(run, number=1, dialect=dialect).attributes
    assert attributes.get("gen_ai.usage.input_tokens") == record.tokens_in
    assert attributes.get("gen_ai.usage.output_tokens") == record.tokens_out
    assert attributes.get("gen_ai.usage.cache_read.input_tokens") == (record.cached_tokens or None)
    assert attributes.get("gen_ai.usage.reasoning.output_tokens") == record.tokens_reasoning
    assert attributes.get("gen_ai.response.id") == record.response_id
    assert attributes.get("otel_gym.tool_calls.names", []) == [
        call["name"] for call in record.tool_calls
    ]
    if record.finish_reason is not None:
        assert attributes["gen_ai.response.finish_reasons"][0] == record.finish_reason  # type: ignore[index]


@pytest.mark.parametrize(
    "category",
    [
        "timeout",
        "rate_limit",
        "auth",
        "not_found",
        "client_error",
        "upstream_error",
        "stream_truncated",
        "capture_parse_error",
        "context_length_exceeded",
        "connection",
        "exception",
    ],
)
def test_a_failed_call_is_an_error_with_its_type(run: Run, category: str) -> None:
    """Each failing category sets status ERROR, error.type, the provider's message as description and an `error` finish reason."""
    span = make(
        run,
        status_code=500,
        error_category=category,
        response={"error": {"message": "it broke", "type": "server_error", "code": "E1"}},
    )
    assert span.status == (ERROR, "it broke")
    assert span.attributes["error.type"] == category
    assert span.attributes["otel_gym.error.code"] == "E1"
    assert span.attributes["gen_ai.response.finish_reasons"] == ["error"]
    assert span.attributes["http.response.status_code"] == 500


def test_an_exception_gives_type_and_message(run: Run) -> None:
    """Where no answer came, the exception that left the application describes the error."""
    span = make(
        run,
        status_code=None,
        error_category="connection",
        response=None,
        exception={"type": "ConnectError", "message": "refused"},
    )
    assert span.status == (ERROR, "refused")
    assert span.attributes["otel_gym.exception.type"] == "ConnectError"
    assert "http.response.status_code" not in span.attributes


def test_a_call_that_its_caller_gave_up_is_no_error(run: Run) -> None:
    """Cancellation leaves the status unset and has an attribute of its own."""
    span = make(run, error_category="cancelled", response=None)
    assert span.status.code == UNSET
    assert span.attributes["otel_gym.cancelled"] is True
    assert "error.type" not in span.attributes
    assert span.attributes["gen_ai.response.finish_reasons"] == ["error"]


def test_an_answer_cut_by_a_limit_is_no_error(run: Run) -> None:
    """The category `incomplete` is an answer that reached its limit: unset, truncated, with the engine's reason."""
    response = {
        **RESPONSES["responses"],
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    span = make(run, dialect="responses", error_category="incomplete", response=response)
    assert span.status.code == UNSET
    assert span.attributes["gen_ai.response.finish_reasons"] == ["max_output_tokens"]
    assert span.attributes["otel_gym.response.truncated"] is True


def test_a_cut_stream_is_truncated_and_an_error(run: Run) -> None:
    """A stream without its terminal event never reads as a completed one."""
    response = copy.deepcopy(RESPONSES["chat"])
    response["choices"][0]["finish_reason"] = None
    span = make(
        run,
        error_category="stream_truncated",
        response=response,
        stream={"chunks": 4, "terminal": "none"},
    )
    assert span.attributes["otel_gym.response.truncated"] is True
    assert span.attributes["gen_ai.response.finish_reasons"] == ["error"]
    assert span.attributes["otel_gym.stream.terminal"] == "none"
    assert span.status.code == ERROR


def test_time_to_first_chunk_belongs_to_streams_and_is_in_seconds(run: Run) -> None:
    """A JSON answer has a first byte too, but only a stream has a time to first chunk."""
    assert "gen_ai.response.time_to_first_chunk" not in make(run).attributes
    request = {**REQUESTS["chat"], "stream": True}
    attributes = make(run, request=request).attributes
    assert attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(1.49025)
    assert attributes["gen_ai.request.stream"] is True


def test_a_refused_stream_has_no_time_to_first_chunk(run: Run) -> None:
    """A stream that was asked for and answered with a JSON error, or with a whole JSON answer, had no chunk; of records that do not tell, the status does."""
    request = {**REQUESTS["chat"], "stream": True}
    for changes in (
        {"status_code": 429, "error_category": "rate_limit", "response": {"error": {}}},
        {"schema": 1},
    ):
        attributes = make(run, request=request, **changes).attributes
        assert "gen_ai.response.time_to_first_chunk" not in attributes
        assert attributes["gen_ai.request.stream"] is True


def test_each_choice_of_a_failed_call_has_a_reason(run: Run) -> None:
    """Of two choices asked for, one that a cut stream never began, and both of a call that failed, end with `error`; a success invents nothing."""
    request = {**REQUESTS["chat"], "n": 2}
    key = "gen_ai.response.finish_reasons"
    cut = make(run, request=request, error_category="stream_truncated").attributes
    assert cut[key] == ["tool_calls", "error"]
    failed = make(run, request=request, error_category="upstream_error", response=None).attributes
    assert failed[key] == ["error", "error"]
    assert make(run, request=request).attributes[key] == ["tool_calls"]
    many = make(run, request={"n": 10**6}, error_category="timeout", response=None).attributes
    assert len(many[key]) == 64  # type: ignore[arg-type] # a list


def test_a_parameter_that_is_null_is_as_good_as_absent(run: Run) -> None:
    """Clients that write every parameter, null where it is not set, lose none of those that are set."""
    request = {
        "model": "m",
        "max_completion_tokens": None,
        "max_tokens": 64,
        "stop_sequences": None,
        "stop": "END",
        "temperature": None,
        "seed": None,
    }
    attributes = make(run, request=request).attributes
    assert attributes["gen_ai.request.max_tokens"] == 64
    assert attributes["gen_ai.request.stop_sequences"] == ["END"]
    assert not {"gen_ai.request.temperature", "gen_ai.request.seed"} & attributes.keys()


def test_a_compacted_context_is_told(run: Run) -> None:
    """A compaction in what was sent or answered is told, and never its absence."""
    name = "gen_ai.conversation.compacted"
    item = {"type": "compaction", "encrypted_content": "x"}
    block = {"role": "assistant", "content": [{"type": "compaction", "content": "so far"}]}
    for dialect, changes in (
        ("responses", {"request": {"input": [item, {"role": "user", "content": "go on"}]}}),
        ("responses", {"response": {"output": [item]}}),
        ("messages", {"request": {"messages": [block, {"role": "user", "content": "go on"}]}}),
        ("messages", {"response": block}),
    ):
        assert make(run, dialect=dialect, **changes).attributes[name] is True
    for dialect in RESPONSES:
        assert name not in make(run, dialect=dialect).attributes
    quoted = {"messages": [{"role": "user", "content": [{"type": "compaction"}]}]}
    assert name not in make(run, dialect="messages", request=quoted).attributes


def test_tokens_by_modality(run: Run) -> None:
    """What a provider breaks down by modality is told, as parts of the totals, where it is not 0."""
    usage = {
        "prompt_tokens": 300,
        "completion_tokens": 9,
        "prompt_tokens_details": {
            "cached_tokens": 40,
            "text_tokens": 100,
            "image_tokens": 200,
            "audio_tokens": 0,
            "cached_tokens_details": {"text_tokens": 40, "image_tokens": 0},
        },
        "completion_tokens_details": {"text_tokens": 4, "audio_tokens": 5},
    }
    attributes = make(run, response={**RESPONSES["chat"], "usage": usage}).attributes
    assert {
        name.removeprefix("gen_ai.usage."): value
        for name, value in attributes.items()
        if name.startswith("gen_ai.usage.")
    } == {
        "input_tokens": 300,
        "output_tokens": 9,
        "cache_read.input_tokens": 40,
        "text.input_tokens": 100,
        "image.input_tokens": 200,
        "text.cache_read.input_tokens": 40,
        "text.output_tokens": 4,
        "audio.output_tokens": 5,
    }


def test_the_engine_is_named_also_on_the_usual_port(run: Run) -> None:
    """Address and port are those of the engine; 443 is written like any other."""
    engine = {"provider": None, "address": "api.openai.com", "port": 443}
    attributes = make(run, engine=engine).attributes
    assert attributes["server.address"] == "api.openai.com"
    assert attributes["server.port"] == 443
    assert attributes["gen_ai.provider.name"] == "openai"


def test_openai_attributes_are_for_openai_alone(run: Run) -> None:
    """Another provider that speaks the same API gets no `openai.*` attribute."""
    attributes = make(run, engine={"provider": "vllm", "address": "h", "port": 8000}).attributes
    assert not [key for key in attributes if key.startswith("openai.")]


def test_sampling_pins_say_what_was_sent_and_what_was_asked(run: Run) -> None:
    """Request attributes hold what the engine got; the caller's own value stands beside it."""
    attributes = make(
        run,
        sampling={
            "requested": {"temperature": 0.7, "top_p": 0.95},
            "pinned": {"temperature": 1, "top_k": 20},
            "effective": {"temperature": 1, "top_p": 0.95, "top_k": 20},
            "overridden": ["temperature"],
            "outbound_sha256": "ab" * 32,
        },
    ).attributes
    assert attributes["gen_ai.request.temperature"] == 1.0
    assert attributes["gen_ai.request.top_k"] == 20
    assert attributes["otel_gym.sampling.pinned"] == ["temperature", "top_k"]
    assert attributes["otel_gym.sampling.overridden"] == ["temperature"]
    assert attributes["otel_gym.sampling.requested.temperature"] == 0.7
    assert attributes["otel_gym.sampling.outbound_sha256"] == "ab" * 32


def test_the_rest_of_our_keys_becomes_attributes(run: Run) -> None:
    """Resends, outcome, session, agent, parent, kind, chosen headers and baggage can be told from the span."""
    attributes = make(
        run,
        client_session_id="s-1",
        upstream_attempted=True,
        response_source="local",
        upstream_status_code=400,
        local_response_reason="context_length_exceeded",
        resend={"count": 2, "of": call_id(0), "reason": "same_bytes"},
        client={
            "agent_id": "sub-1",
            "parent_id": "p-1",
            "request_kind": "compaction",
            "headers": {"x-task": "t"},
            "baggage": {"tenant": "blue"},
        },
    ).attributes
    assert attributes["gen_ai.conversation.id"] == "s-1"
    assert attributes["otel_gym.resend.count"] == 2
    assert attributes["otel_gym.resend.of"] == call_id(0)
    assert attributes["otel_gym.resend.reason"] == "same_bytes"
    assert attributes["otel_gym.upstream.attempted"] is True
    assert attributes["otel_gym.upstream.status_code"] == 400
    assert attributes["otel_gym.response.source"] == "local"
    assert attributes["otel_gym.response.local_reason"] == "context_length_exceeded"
    assert attributes["otel_gym.client.agent.id"] == "sub-1"
    assert attributes["otel_gym.client.parent.id"] == "p-1"
    assert attributes["otel_gym.client.request_kind"] == "compaction"
    assert attributes["http.request.header.x-task"] == ["t"]
    assert attributes["otel_gym.baggage.tenant"] == "blue"


def test_an_inbound_trace_is_linked_by_default(run: Run) -> None:
    """Mode `link`: the span stays in its rollout's trace and links to the caller's span, tracestate included."""
    span = make(
        run,
        trace={
            "trace_id": trace_id("run-1", "3-1"),
            "span_id": "c" * 16,
            "parent_span_id": root_span_id("run-1", "3-1"),
            "inbound": {"traceparent": TRACEPARENT, "tracestate": "v=1"},
            "mode": "link",
        },
    )
    assert span.trace_id == trace_id("run-1", "3-1")
    assert span.parent_span_id == root_span_id("run-1", "3-1")
    assert [(link.trace_id, link.span_id, link.trace_state) for link in span.links] == [
        ("a" * 32, "b" * 16, "v=1")
    ]
    assert not span.parent_is_remote


def test_an_inbound_trace_can_be_the_parent(run: Run) -> None:
    """Mode `parent`: the span joins the caller's trace below the caller's span and links to the rollout's root."""
    span = make(
        run,
        trace={
            "trace_id": "a" * 32,
            "span_id": "c" * 16,
            "parent_span_id": "b" * 16,
            "inbound": {"traceparent": TRACEPARENT, "tracestate": None},
            "mode": "parent",
        },
    )
    assert (span.trace_id, span.parent_span_id, span.span_id) == ("a" * 32, "b" * 16, "c" * 16)
    assert span.parent_is_remote
    assert [(link.trace_id, link.span_id) for link in span.links] == [
        (trace_id("run-1", "3-1"), root_span_id("run-1", "3-1"))
    ]


@pytest.mark.parametrize("mode", ["link", "parent", "ignore"])
def test_a_caller_in_the_rollouts_own_trace_is_always_the_parent(run: Run, mode: str) -> None:
    """An agent that was given the rollout's trace headers nests the call under its own span, without a link."""
    home = trace_id("run-1", "3-1")
    span = make(
        run,
        trace={
            "trace_id": home,
            "span_id": "c" * 16,
            "parent_span_id": "b" * 16,
            "inbound": {"traceparent": f"00-{home}-{'b' * 16}-01"},
            "mode": mode,
        },
    )
    assert span.parent_span_id == "b" * 16
    assert span.links == []


def test_an_inbound_trace_can_be_ignored(run: Run) -> None:
    """Mode `ignore`: the header is in the record and nowhere in the span."""
    span = make(
        run, trace={"inbound": {"traceparent": TRACEPARENT, "tracestate": None}, "mode": "ignore"}
    )
    assert span.links == []
    assert span.trace_id == trace_id("run-1", "3-1")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "junk",
        f"ff-{'a' * 32}-{'b' * 16}-01",
        f"00-{'0' * 32}-{'b' * 16}-01",
        f"00-{'a' * 32}-{'0' * 16}-01",
        f"00-{'a' * 32}-{'b' * 16}-01-extra",
        f"00-{'A' * 32}-{'b' * 16}-01",
        "x" * 600,
        7,
        None,
    ],
)
def test_a_malformed_traceparent_makes_no_link(run: Run, header: object) -> None:
    """What the specification refuses is as if it had not come."""
    span = make(run, trace={"inbound": {"traceparent": header}, "mode": "link"})
    assert span.links == []


def test_the_same_record_under_each_convention(run: Run) -> None:
    """The switch decides the names: the first version is primary, the others add those in which they differ."""
    new = make(run, dialect="messages", options=SpanOptions(semconv=("genai-0.1",))).attributes
    old = make(run, dialect="messages", options=SpanOptions(semconv=("genai-1.41",))).attributes
    both = make(
        run, dialect="messages", options=SpanOptions(semconv=("genai-0.1", "openinference"))
    ).attributes
    assert "gen_ai.usage.cache_write.input_tokens" in new
    assert "gen_ai.usage.cache_creation.input_tokens" not in new
    assert "gen_ai.usage.cache_creation.input_tokens" in old
    assert "gen_ai.usage.cache_write.input_tokens" not in old
    assert "gen_ai.request.reasoning.level" not in old
    assert old["gen_ai.request.top_k"] == 40.0
    assert type(old["gen_ai.request.top_k"]) is float
    assert both["openinference.span.kind"] == "LLM"
    assert both["llm.provider"] == "anthropic"
    assert both["llm.token_count.prompt"] == 117
    assert both["llm.token_count.total"] == 137
    assert both["llm.token_count.prompt_details.cache_write"] == 7
    assert '"top_k":40' in str(both["llm.invocation_parameters"])


def rollout(**changes: Any) -> dict[str, Any]:
    return {
        "rollout_id": "3-1-a2",
        "started_at": BASE_TIME,
        "completed_at": BASE_TIME + 60,
        "agent": "simple_agent",
        "task_index": 3,
        "rollout_index": 1,
        "attempt_index": 2,
        "reward": 0.5,
        "totals": {"model_calls": 4, "input_tokens": 100, "output_tokens": 20},
        **changes,
    }


def test_a_rollout_is_an_agent_span_with_its_reward(run: Run) -> None:
    """The root span has the rollout's name, times, totals and reward; the reward is an evaluation event as well."""
    span = rollout_span(rollout(), run, DEFAULT)
    assert span.name == "invoke_agent simple_agent"
    assert span.kind == INTERNAL
    assert span.parent_span_id == ""
    assert span.trace_id == trace_id("run-1", "3-1-a2")
    assert span.span_id == root_span_id("run-1", "3-1-a2")
    assert span.end_ns - span.start_ns == 60 * 10**9
    assert span.attributes["otel_gym.reward"] == 0.5
    assert span.attributes["otel_gym.attempt.index"] == 2
    assert span.attributes["gen_ai.usage.input_tokens"] == 100
    (event,) = span.events
    assert event.name == "gen_ai.evaluation.result"
    assert event.attributes["gen_ai.evaluation.score.value"] == 0.5


def test_an_attempt_links_to_the_attempt_before(run: Run) -> None:
    """Attempt 2 links to attempt 1, attempt 1 to the first, which has no suffix; the first links to nothing."""
    (link,) = rollout_span(rollout(), run, DEFAULT).links
    assert link.trace_id == trace_id("run-1", "3-1-a1")
    assert link.span_id == root_span_id("run-1", "3-1-a1")
    assert previous_attempt("3-1-a1") == "3-1"
    assert previous_attempt("3-1") is None
    assert rollout_span(rollout(rollout_id="3-1"), run, DEFAULT).links == []


def test_a_failed_rollout_is_an_error(run: Run) -> None:
    """The error's class is error.type, its text the description."""
    span = rollout_span(rollout(error="agent crashed", error_type="agent_run_error"), run, DEFAULT)
    assert span.status == (ERROR, "agent crashed")
    assert span.attributes["error.type"] == "agent_run_error"


def test_times_are_whole_microseconds() -> None:
    """A double of Unix seconds holds no more than that, so every reader of the file comes to the same nanoseconds."""
    assert unix_ns(1_790_000_000.123456) == 1_790_000_000_123_456_000
    assert unix_ns(None) == 0
    assert unix_ns(-5.0) == 0
    assert unix_ns(True) == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYS = [
    "model_call_id", "dialect", "model_ref", "started_at", "completed_at", "latency_ms", "latency_ttft_ms",
    "status_code", "error_category", "request", "response", "client_session_id", "upstream_attempted", "trace",
    "engine", "client", "stream", "sampling", "resend", "exception",
]  # fmt: skip
INNER = [
    "model", "usage", "choices", "output", "content", "error", "id", "tools", "messages", "input", "stop", "n",
    "prompt_tokens", "finish_reason", "message", "tool_calls", "inbound", "traceparent", "pinned", "effective",
]  # fmt: skip


@given(
    st.fixed_dictionaries(
        {},
        optional={
            key: JSON | st.dictionaries(st.sampled_from(INNER), JSON, max_size=5) for key in KEYS
        },
    )
)
@settings(max_examples=120, deadline=None)
def test_whatever_a_line_holds_it_becomes_a_span(raw: dict[str, Any]) -> None:
    """No JSON object makes the mapping or the encoder raise, under any convention and content mode; model output is hostile."""
    run = Run(schema=1, run_id="r", created_at=1.0, resource={})
    options = SpanOptions(
        semconv=("genai-0.1", "genai-1.41", "openinference"), content="SPAN_AND_EVENT"
    )
    span = span_from_record(raw, RecordPlace("0-0", "0-0.capture.jsonl", 0), run, options)
    assert encode_span(span) == encode_span(
        span_from_record(raw, RecordPlace("0-0", "0-0.capture.jsonl", 0), run, options)
    )
    assert span.end_ns >= span.start_ns


@pytest.mark.parametrize("dialect", list(REQUESTS))
@pytest.mark.parametrize(
    "versions",
    [
        ("genai-0.1",),
        ("genai-1.41",),
        ("genai-0.1", "genai-1.41"),
        ("genai-1.41", "genai-0.1", "openinference"),
    ],
)
def test_full_records_conform(run: Run, dialect: str, versions: tuple[str, ...]) -> None:
    """A record with every key we write conforms to each choice of conventions, content included."""
    span = make(
        run,
        dialect=dialect,
        options=SpanOptions(semconv=versions, content="SPAN_AND_EVENT"),
        engine={"provider": "vllm", "address": "10.0.0.1", "port": 8000},
        stream={"chunks": 9, "terminal": "complete"},
        client_session_id="s",
    )
    assert_conforms(span, versions)
