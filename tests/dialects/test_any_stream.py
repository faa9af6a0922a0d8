"""Whatever the bytes: no exception, the same reading however they are cut, and nothing that JSON cannot say."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.capture.record import build_model_call_record, build_raw_record, encode_line
from otel_gym.dialects import DialectName, read_stream
from tests.dialects.facts import facts
from tests.dialects.streams import (
    DIALECTS,
    chat,
    chunkings,
    delta,
    event,
    odd_streams,
    read,
    values,
)


@settings(max_examples=1500)
@given(st.sampled_from(DIALECTS), st.data())
def test_any_stream_reads_the_same_however_it_is_cut(
    dialect: DialectName, draws: st.DataObject
) -> None:
    """Odd events in odd framing give one reading, whatever the chunks, that can be written as JSON."""
    stream = draws.draw(odd_streams())
    whole = read_stream(dialect, [stream])
    assert repr(read_stream(dialect, draws.draw(chunkings(stream)))) == repr(whole)
    json.dumps([whole.response, whole.error, whole.unmerged])


@settings(max_examples=150)
@given(st.sampled_from(DIALECTS), st.one_of(st.binary(max_size=300), odd_streams()), st.booleans())
def test_any_body_becomes_a_line_and_a_derived_record(
    dialect: DialectName, body: bytes, streamed: bool
) -> None:
    """`build_raw_record` never raises, its line is one line of JSON, and every line can be derived."""
    line = encode_line(build_raw_record(facts(dialect, body, streamed=streamed, request=body)))
    assert line.count(b"\n") == 1
    build_model_call_record(json.loads(line), 0)


@given(st.sampled_from(DIALECTS), values)
def test_any_json_becomes_a_line_and_a_derived_record(dialect: DialectName, value: object) -> None:
    """A response of any shape is kept as it is, and derived without an exception."""
    body = json.dumps(value).encode()
    raw = json.loads(encode_line(build_raw_record(facts(dialect, body, request=body))))
    build_model_call_record(raw, 0)
    if isinstance(value, dict):
        assert raw["response"] == json.loads(body) and raw["request"] == json.loads(body)
    else:
        assert raw["response"] is None and raw["response_raw"] == body.decode()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("depth", [150, 300, 900, 5000])
def test_deep_nesting_is_merged_or_kept_as_text(dialect: DialectName, depth: int) -> None:
    """An event nested beyond all sense harms neither the reading nor the other events."""
    deep = (
        b'{"type":"x","delta":{"x":' + b"[" * depth + b"]" * depth + b'},"choices":[{"delta":{"x":'
    )
    deep += b'{"a":' * depth + b"1" + b"}" * depth + b"}}]}"
    text = chat(delta(content="a")) if dialect == "chat" else event("error", error={"message": "m"})
    reading = read_stream(dialect, [text + b"data: " + deep + b"\n\n" + text])
    assert reading.response is not None and reading.events == 3
    if depth > 200:
        assert {"data": deep.decode()} in reading.unmerged
    raw = build_raw_record(facts(dialect, text + b"data: " + deep + b"\n\n", streamed=True))
    json.loads(encode_line(raw))


@pytest.mark.parametrize(
    ("dialect", "events", "text"),
    [
        (
            "chat",
            [b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"H\xe9llo"}}]}\n\n'],
            "H\ufffdllo",
        ),
        (
            "messages",
            [
                b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n',
                b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"H\xe9llo"}}\n\n',
            ],
            "H\ufffdllo",
        ),
        (
            "responses",
            [
                b'data: {"type":"response.output_text.delta","output_index":0,"item_id":"i","content_index":0,'
                b'"delta":"H\xe9llo"}\n\n'
            ],
            "H\ufffdllo",
        ),
        ("completions", [b'data: {"choices":[{"index":0,"text":"H\xe9llo"}]}\n\n'], "H\ufffdllo"),
    ],
)
def test_an_event_that_is_not_utf8_is_read_with_replacement_characters(
    dialect: DialectName, events: list[bytes], text: str
) -> None:
    """A bad byte costs one character, not the event: the rest is merged, and the event's bytes are kept."""
    reading = read(dialect, *events)
    assert text in repr(reading.response)
    assert [list(entry) for entry in reading.unmerged] == [["data_b64"]]
    damaged = base64.b64decode(reading.unmerged[0]["data_b64"])
    assert damaged == events[-1][len(b"data: ") :].rstrip()


@pytest.mark.parametrize(
    ("dialect", "end"),
    [
        ("responses", b'{"type":"response.completed","response":{"id":"r\xe9","output":[]}}'),
        ("messages", b'{"type":"message_stop","note":"\xe9"}'),
    ],
)
def test_a_terminal_event_that_is_not_utf8_still_ends_the_stream(
    dialect: DialectName, end: bytes
) -> None:
    """Scanner and reading agree on an end that has no event line and holds a bad byte."""
    assert read(dialect, b"data: " + end + b"\n\n").terminal == "complete"


def test_nesting_beyond_all_sense_is_kept_as_base64_where_it_is_not_utf8() -> None:
    """Replacement does not lead around the bound on nesting."""
    reading = read("chat", b'data: {"a":' + b"[" * 999 + b'"\xe9"' + b"]" * 999 + b"}\n\n")
    assert reading.response is None and list(reading.unmerged[0]) == ["data_b64"]
