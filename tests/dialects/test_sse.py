"""The event stream decoder follows the WHATWG specification, however the bytes are cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.dialects import SSEDecoder, SSEvent, is_event_stream
from tests.dialects.streams import chunkings, odd_streams


def decode(*chunks: bytes) -> list[tuple[str, bytes]]:
    """Events as (type, data)."""
    decoder = SSEDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return [(event.event, event.data) for event in events + decoder.finish()]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", [("", b"a"), ("", b"b")], id="LF"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", [("", b"a"), ("", b"b")], id="CRLF"),
        pytest.param(b"data: a\r\rdata: b\r\r", [("", b"a"), ("", b"b")], id="CR"),
        pytest.param(b"data: a\n\r\ndata: b\r\n\rdata: c\r\n\n", [("", b"a"), ("", b"b"), ("", b"c")], id="mixed"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [("", b"a")], id="BOM"),
        pytest.param(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [("", b"b")], id="only one BOM"),
        pytest.param(b": hi\n\n:\n\ndata: a\n\n", [("", b"a")], id="comments"),
        pytest.param(b"data: a\n: hi\ndata: b\n\n", [("", b"a\nb")], id="comment inside"),
        pytest.param(b"data: YHOO\ndata: +2\ndata: 10\n\n", [("", b"YHOO\n+2\n10")], id="several lines"),
        pytest.param(b"data:test\n\ndata: test\n\ndata:  x\n\n", [("", b"test"), ("", b"test"), ("", b" x")], id="space"),
        pytest.param(b"data\n\ndata\ndata\n\ndata:", [("", b""), ("", b"\n"), ("", b"")], id="empty data"),
        pytest.param(b"event: ping\n\ndata: a\n\n", [("", b"a")], id="no data, no event"),
        pytest.param(b"event: add\ndata: 1\n\ndata: 2\n\n", [("add", b"1"), ("", b"2")], id="type is reset"),
        pytest.param(b"event: a\nevent: b\ndata: 1\n\n", [("b", b"1")], id="last type counts"),
        pytest.param(b"event: a\nevent\ndata: 1\n\n", [("", b"1")], id="type without colon"),
        pytest.param(b"id: 7\nretry: 10\nretry:\ndata: a\nfoo: b\n\n", [("", b"a")], id="other fields"),
        pytest.param(b"Data: a\nDATA: b\ndata: c\n\n", [("", b"c")], id="names are case-sensitive"),
        pytest.param(b"\n\n\ndata: a\n\n\n\ndata: b\n\n", [("", b"a"), ("", b"b")], id="blank lines"),
        pytest.param(b"data: a\xe2\x80\xa8b\x0bc\n\n", [("", b"a\xe2\x80\xa8b\x0bc")], id="no other line ends"),
        pytest.param(b"data: [DONE]\n", [("", b"[DONE]")], id="no blank line at the end"),
        pytest.param(b"data: [DONE]", [("", b"[DONE]")], id="no line end at the end"),
        pytest.param(b"", [], id="nothing"),
    ],
)  # fmt: skip
def test_event_streams_are_read_as_specified(
    stream: bytes, events: list[tuple[str, bytes]]
) -> None:
    """Every rule of the specification, whole, byte by byte, and cut in two at every place."""
    assert decode(stream) == events
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == events
    for cut in range(len(stream)):
        assert decode(stream[:cut], stream[cut:]) == events


def test_a_last_event_without_its_blank_line_says_so() -> None:
    """`finish()` marks the event that the end of the stream cut off."""
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\n\ndata: b") == [SSEvent("", b"a", True)]
    assert decoder.finish() == [SSEvent("", b"b", False)]
    assert decoder.finish() == []


def by_the_letter(stream: bytes) -> list[tuple[str, bytes]]:
    """A slow decoder written straight from the specification, for comparison."""
    stream = stream.removeprefix(b"\xef\xbb\xbf")
    events: list[tuple[str, bytes]] = []
    kind, lines = b"", []
    for line in [*re.split(rb"\r\n|\n|\r", stream), b""]:
        if line == b"":
            if lines:
                events.append((kind.decode("utf-8", "replace"), b"\n".join(lines)))
            kind, lines = b"", []
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            lines.append(value)
        elif name == b"event":
            kind = value
    return events


@given(st.data())
def test_any_stream_cut_anywhere_gives_the_events_of_the_specification(
    draws: st.DataObject,
) -> None:
    """Odd framing, odd line ends and any chunking: the same events as a decoder written by the letter."""
    stream = draws.draw(odd_streams())
    assert decode(*draws.draw(chunkings(stream))) == by_the_letter(stream)


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_any_bytes_give_the_events_of_the_specification(chunks: list[bytes]) -> None:
    """Bytes without any sense are no problem either."""
    assert decode(*chunks) == by_the_letter(b"".join(chunks))


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=UTF-8", True),
        (" TEXT/EVENT-STREAM ;x", True),
        ("application/json", False),
        ("text/event-streams", False),
        ("", False),
    ],
)
def test_content_types_match_case_insensitively(content_type: str, expected: bool) -> None:
    """Reference fault: `Text/Event-Stream` was treated as JSON."""
    assert is_event_stream(content_type) is expected
