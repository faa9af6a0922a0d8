"""What a span may carry through the Collector: nothing blocks its way to Jaeger, and the redaction option lets nothing slip."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.stack.stored import spans_of, wait_until_stored
from tests.stack.traffic import Sent, key_value, post_spans, rollout_spans
from tools.backends.processes import CONFIGURATION, Collector, Jaeger

pytestmark = pytest.mark.stack

LONG = 70_000
"""More than Badger takes into one key of its index."""
EVENT = "gen_ai.client.inference.operation.details"
SECRETS = (
    f"Bearer {'b2/+' * 6}==",
    f"sk-ant-{'a1' * 12}",
    f"nvapi-{'Ab1_' * 8}",
    f"hf_{'aB3' * 12}",
    f"AIza{'x1Y' * 12}",
    f"ghp_{'c3D' * 12}",
    "AKIA" + "Z9" * 8,
    "xoxb-123456789012-abcdefGHIJ",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEFghiJKLmno",
)


def _text(span: Span) -> None:
    span.attributes.append(key_value("gen_ai.input.messages", "x" * 200_000))


def _structure(span: Span) -> None:
    value = span.attributes.add(key="messages").value
    value.array_value.values.add().string_value = "y" * LONG


def _key(span: Span) -> None:
    span.attributes.append(key_value("k" * LONG, "v"))


def _name(span: Span) -> None:
    span.name = "n" * LONG


def _status(span: Span) -> None:
    span.status.message = "€" * LONG


def _event(span: Span) -> None:
    event = span.events.add(name=EVENT)
    value = event.attributes.add(key="gen_ai.input.messages").value
    value.array_value.values.add().string_value = "z" * LONG


def _event_name(span: Span) -> None:
    span.events.add(name="e" * LONG)


@pytest.fixture
def before_badger(jaeger_badger: Jaeger, tmp_path: Path) -> Iterator[Collector]:
    """A Collector in front of `jaeger_badger`."""
    collector = Collector(tmp_path / "collector", jaeger_badger)
    collector.start()
    yield collector
    collector.kill()


def test_what_badger_refuses_is_cut_on_its_way(
    before_badger: Collector, jaeger_badger: Jaeger
) -> None:
    """Neither a long text, structure, key, name, status or event nor a long resource makes Jaeger refuse its batch: each
    of the spans is stored, and so is all that comes with them."""
    spoilers = (_text, _structure, _key, _name, _status, _event, _event_name)
    sent = Sent()
    for spoil in spoilers:
        spans = rollout_spans(spoil.__name__, 3, sent)
        spoil(spans[1])
        post_spans(before_badger.otlp_http, spans)
    post_spans(before_badger.otlp_http, rollout_spans("resource", 3, sent), "s" * LONG)
    wait_until_stored(jaeger_badger, sent)


def test_a_cut_leaves_the_rest_as_it_is(before_badger: Collector, jaeger_badger: Jaeger) -> None:
    """A long text is cut to 60,000 bytes; numbers and lists beside it stay numbers and lists, and shorter texts whole."""
    sent = Sent()
    spans = rollout_spans("kept", 1, sent)
    _text(spans[1])
    spans[1].attributes.append(key_value("gen_ai.output.messages", "o\n" * 25_000))
    reasons = spans[1].attributes.add(key="gen_ai.response.finish_reasons").value
    reasons.array_value.values.add().string_value = "stop"
    post_spans(before_badger.otlp_http, spans)
    wait_until_stored(jaeger_badger, sent)
    (tags,) = (
        s["tags"] for s in spans_of(jaeger_badger, sent) if "gen_ai.input.messages" in s["tags"]
    )
    assert len(tags["gen_ai.input.messages"]) == 60_000
    assert tags["gen_ai.output.messages"] == "o\n" * 25_000
    assert json.loads(tags["gen_ai.response.finish_reasons"]) == ["stop"]
    assert tags["gen_ai.usage.input_tokens"] == 100


def test_redaction_masks_secrets_wherever_a_text_stands(
    start_collector: Callable[..., Collector], jaeger: Jaeger
) -> None:
    """With the redaction option no secret of any known form is stored, be it in an attribute, name, status or event; what
    stands around it stays, and so does a word that only looks like one."""
    collector = start_collector(CONFIGURATION / "options" / "redaction.yaml")
    sent = Sent()
    spans = rollout_spans("redacted", 2, sent)
    call = spans[1]
    for number, secret in enumerate(SECRETS):
        call.attributes.append(key_value(f"note.{number}", f"key {secret} end"))
    call.name = f"chat {SECRETS[1]}"
    call.status.message = f"engine says: {SECRETS[0]} is wrong"
    call.events.add(name=f"failure {SECRETS[1]}").attributes.append(
        key_value("exception.message", f"key {SECRETS[2]} end")
    )
    call.attributes.append(key_value("url.full", "http://engine/v1?model=m&api_key=hidden&x=1"))
    call.attributes.append(key_value("task", "ask-a-question-of-the-risk_assessment_team"))
    post_spans(collector.otlp_http, spans)
    wait_until_stored(jaeger, sent)
    found = spans_of(jaeger, sent)
    assert [secret for secret in SECRETS if secret in json.dumps(found)] == []
    (span,) = (each for each in found if "note.0" in each["tags"])
    tags = span["tags"]
    assert {tags[f"note.{number}"] for number in range(len(SECRETS))} == {"key **** end"}
    assert span["operationName"] == "chat ****"
    assert tags["otel.status_description"] == "engine says: **** is wrong"
    assert {field["value"] for field in span["logs"][0]["fields"]} == {
        "failure ****",
        "key **** end",
    }
    assert tags["url.full"] == "http://engine/v1?model=m&api_key=***&x=1"
    assert tags["task"] == "ask-a-question-of-the-risk_assessment_team"
    assert tags["gen_ai.usage.input_tokens"] == 100
    assert tags["otel_gym.rollout.id"] == "redacted"
    assert not [name for name in tags if name.startswith("redaction.")]


def test_redaction_strips_content_from_spans_and_events(
    start_collector: Callable[..., Collector], jaeger: Jaeger
) -> None:
    """With the redaction option no message content is stored, on a span or on an event, as text or structured, by the
    names of either convention."""
    collector = start_collector(CONFIGURATION / "options" / "redaction.yaml")
    sent = Sent()
    spans = rollout_spans("stripped", 1, sent)
    names = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions")
    old = ("gen_ai.prompt.0.content", "gen_ai.completion", "input.value", "output.value")
    for name in (*names, *old, "llm.input_messages.0.message.content"):
        spans[1].attributes.append(key_value(name, "a private word"))
    event = spans[1].events.add(name=EVENT)
    for name in names:
        value = event.attributes.add(key=name).value
        value.array_value.values.add().string_value = "a private word"
    post_spans(collector.otlp_http, spans)
    wait_until_stored(jaeger, sent)
    found = spans_of(jaeger, sent)
    assert "private" not in json.dumps(found)
    assert EVENT in json.dumps(found)
