"""Runs of events are read as if each had been parsed by itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.dialects import DialectName, SSEDecoder, StreamReading, accumulator, read_stream
from otel_gym.dialects.reading import EventAccumulator
from tests.dialects.streams import DONE, chat, data, delta, event

CHAT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"model":"m"}\n\n'
TEXT = b'data: {"id":"c","object":"text_completion","choices":[{"index":0,"text":"%s"}]}\n\n'
BLOCK = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":"%%s"}}\n\n'
)
PIECES = (
    b"a", b"", b" tok", b"\\n", b'\\"', b"\\u00e9", b"\xc3", b"\xa9", "é".encode(), b"\x01", b"\x7f", b"\\",
    b'","role":"x', b'"},"x":{"y":"z', b"content", b'","content":"b',
)  # fmt: skip
NOISE: dict[DialectName, tuple[bytes, ...]] = {
    "chat": (
        chat(delta(content="n"), model="m"),
        chat(delta(1, content="other")),
        data(
            {
                "id": "c",
                "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}],
                "model": "M",
            }
        ),
        data(
            {
                "id": "c",
                "choices": [{"index": 0, "delta": {"content": [{"type": "text", "text": "p"}]}}],
            }
        ),
        data(
            {
                "id": "c",
                "choices": [{"index": 0, "delta": {"content": None}, "finish_reason": None}],
                "model": "m",
            }
        ),
        data({"id": "c", "choices": [], "usage": {"prompt_tokens": 1}}),
        data({"error": {"message": "m"}}),
        DONE,
        b"data: {oops\n\n",
        b": hi\n\n",
    ),
    "completions": (
        data({"id": "c", "choices": [{"index": 1, "text": "o"}]}),
        data({"id": "c", "choices": [{"index": 0, "text": None, "finish_reason": "stop"}]}),
        data({"id": "c", "choices": [{"index": 0, "text": 7}]}),
        DONE,
    ),
    "messages": (
        event("ping"),
        event("content_block_start", index=0, content_block={"type": "text", "text": "s"}),
        event("content_block_start", index=1, content_block={"type": "text", "text": ""}),
        event("content_block_delta", delta={"type": "text_delta", "text": "no index"}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": 7}),
        event("content_block_start", content_block={"type": "text", "text": "new"}),
        event("message_stop"),
        BLOCK % 1 % b"b",
    ),
}
TEMPLATES: dict[DialectName, tuple[bytes, ...]] = {
    "chat": (CHAT,),
    "completions": (TEXT,),
    "messages": (BLOCK % 0, BLOCK % 1),
}


def one_by_one(dialect: DialectName, stream: bytes) -> StreamReading:
    """The reading without runs."""
    reading = accumulator(dialect)
    assert isinstance(reading, EventAccumulator)
    reading._skip = 10**9
    decoder = SSEDecoder()
    for each in [*decoder.feed(stream), *decoder.finish()]:
        reading.feed(each)
    return reading.finish()


@settings(max_examples=300)
@given(st.sampled_from(sorted(TEMPLATES)), st.data())
def test_runs_are_read_as_single_events(dialect: DialectName, draws: st.DataObject) -> None:
    """Escapes, quotes, halves of characters, control characters, and anything in between."""
    lead = st.sampled_from(TEMPLATES[dialect]).map(lambda template: template % b"lead")
    text = st.builds(
        lambda template, piece, times: template % piece * times,
        st.sampled_from(TEMPLATES[dialect]),
        st.sampled_from(PIECES),
        st.integers(1, 3),
    )
    parts = st.one_of(lead, text, text, st.sampled_from(NOISE[dialect]))
    stream = b"".join(draws.draw(st.lists(parts, max_size=14)))
    assert repr(read_stream(dialect, [stream])) == repr(one_by_one(dialect, stream))


@pytest.mark.parametrize("dialect", sorted(TEMPLATES))
def test_a_run_is_really_one(dialect: DialectName) -> None:
    """A plain stream is nearly all collected without parsing, and reads right."""
    template = TEMPLATES[dialect][0]
    start = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    decoder = SSEDecoder()
    reading = accumulator(dialect)
    assert isinstance(reading, EventAccumulator)
    lead = start if dialect == "messages" else template % b"x"
    for each in decoder.feed(
        lead + b"".join(template % (b"%d " % number) for number in range(100))
    ):
        reading.feed(each)
    assert reading._run is not None and len(reading._run._pieces) >= 98
    expected = ("" if dialect == "messages" else "x") + "".join(
        f"{number} " for number in range(100)
    )
    assert expected in repr(reading.finish().response)


def test_events_that_never_repeat_are_not_tried_for_ever() -> None:
    """Random padding in every chunk: the search for runs backs off."""
    reading = accumulator("chat")
    assert isinstance(reading, EventAccumulator)
    decoder = SSEDecoder()
    for number in range(600):
        chunk = {"id": "c", "obfuscation": str(number), "choices": [delta(content="a")]}
        for each in decoder.feed(data(chunk)):
            reading.feed(each)
    assert reading._fruitless < 12
    found = reading.finish().response
    assert found is not None and found["choices"][0]["message"]["content"] == "a" * 600


def test_an_event_of_several_data_lines_begins_no_run() -> None:
    """Its data with the line ends is not what stands in the stream: lines without a field name are no data."""
    form = '{\n"id":"c","choices":[{"index":0,"delta":{"content":"%s"}}]}'
    lines = b"".join(
        b"".join(b"data: %s\n" % line for line in (form % text).encode().split(b"\n")) + b"\n"
        for text in ("lead" * 999, "a" * 3000, "b" * 3000)
    )
    bare = b"".join(b"data: %s\n\n" % (form % text).encode() for text in ("c" * 3000, "d" * 3000))
    for stream in (lines + bare, lines + bare + lines):
        assert repr(read_stream("chat", [stream])) == repr(one_by_one("chat", stream))
