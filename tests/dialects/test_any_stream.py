"""Whatever the bytes: no exception, the same reading however they are cut, and nothing that JSON cannot say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.capture.record import build_model_call_record, build_raw_record, encode_line
from otel_gym.dialects import DialectName, read_stream
from tests.dialects.facts import facts
from tests.dialects.streams import DIALECTS, chat, chunkings, delta, event, odd_streams, values


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
