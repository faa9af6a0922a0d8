"""Runs of events are read as if each had been parsed by itself."""

from __future__ import annotations

import re
from itertools import cycle
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.dialects import DialectName, SSEDecoder, StreamReading, accumulator, read_stream
from otel_gym.dialects import reading as reading_module
from otel_gym.dialects import runs as runs_module
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
    b"\\ud83d", b"\\ude42", b"\\uD83D\\uDE42", b"\\u12", b"\\x", b"\\/\\\\", b'{\\"a\\":', b"\\n\\t}", b"[]", b"\n",
    b'","role":"x', b'"},"x":{"y":"z', b"content", b'","content":"b',
)  # fmt: skip
INPUT = b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":"%%s"}}\n\n'
ARGUMENTS = (
    b'data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"function":{"arguments":"%%s"}}]},'
    b'"finish_reason":null}],"model":"m"}\n\n'
)
PADDED = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"model":"m","obfuscation":"@P"}\n\n'
OUTPUT = (
    b"event: response.output_text.delta\n"
    b'data: {"type":"response.output_text.delta","sequence_number":@N,"item_id":"i","output_index":%d,"content_index":0,'
    b'"delta":"%%s","logprobs":[],"obfuscation":"@P"}\n\n'
)
INPUTS = (
    b'data: {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "f", "delta": "%s", '
    b'"sequence_number": @N}\n\n'
)
NUMBERS = (
    b"0",
    b"1",
    b"17",
    b"900719925474099",
    b"01",
    b"-1",
    b"1.5",
    b"1e3",
    b"null",
    b'"7"',
    b"12345678901234567890",
)
PADDINGS = (b"", b"a", b"aZ9", b'x","y":"z', b"\\n", "é".encode(), b"\xff", b"\n", b'"')
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
        *(
            data(
                {
                    "id": "c",
                    "choices": [
                        {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
                    ],
                    "model": "m",
                }
            )
            for call in (
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}},
                {"index": 1, "id": "a", "function": {"name": "g", "arguments": "{}"}},
                {"index": 0, "function": {"name": "f", "arguments": "{}"}},
                {"id": "a", "function": {"arguments": "by id"}},
                {"index": 0, "id": "b", "function": {"arguments": "other"}},
                {"index": 0, "function": {"arguments": None}},
                {"index": 0, "function": None, "custom": {"input": "i"}},
            )
        ),
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
    "responses": (
        event("response.created", response={"id": "r", "output": []}),
        event("response.output_item.added", output_index=0, item={"id": "i", "type": "message"}),
        event(
            "response.output_item.added", output_index=1, item={"id": "f", "type": "function_call"}
        ),
        event(
            "response.output_text.done", output_index=0, item_id="i", content_index=0, text="whole"
        ),
        event(
            "response.output_text.delta",
            output_index=0,
            item_id="i",
            content_index=0,
            delta="n",
            logprobs=[{"token": "n"}],
        ),
        event(
            "response.output_text.delta",
            output_index=0,
            item_id="i",
            content_index=0,
            delta="n",
            x=1,
        ),
        event(
            "response.output_text.delta",
            output_index=0,
            item_id="i",
            content_index=0,
            delta=7,
            sequence_number=3,
        ),
        event("response.completed", response={"id": "r", "output": []}),
        b": hi\n\n",
    ),
    "messages": (
        event("ping"),
        event("content_block_start", index=0, content_block={"type": "text", "text": "s"}),
        event("content_block_start", index=1, content_block={"type": "text", "text": ""}),
        event("content_block_delta", delta={"type": "text_delta", "text": "no index"}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": 7}),
        event("content_block_start", content_block={"type": "text", "text": "new"}),
        event(
            "content_block_start",
            index=0,
            content_block={"type": "tool_use", "id": "t", "name": "f", "input": {}},
        ),
        event(
            "content_block_delta",
            index=0,
            delta={"type": "input_json_delta", "partial_json": "1", "x": 1},
        ),
        event("message_stop"),
        BLOCK % 1 % b"b",
    ),
}
TEMPLATES: dict[DialectName, tuple[bytes, ...]] = {
    "chat": (CHAT, ARGUMENTS % 0, ARGUMENTS % 1, PADDED),
    "completions": (TEXT,),
    "messages": (BLOCK % 0, BLOCK % 1, INPUT % 0, INPUT % 1),
    "responses": (OUTPUT % 0, OUTPUT % 1, INPUTS),
}


def varied(stream: bytes, numbers: list[bytes], paddings: list[bytes]) -> bytes:
    """The stream with numbers and paddings in their places, over and over."""
    number, padding = cycle(numbers), cycle(paddings)
    return re.sub(rb"@[NP]", lambda found: next(number if found[0] == b"@N" else padding), stream)


def one_by_one(dialect: DialectName, stream: bytes) -> StreamReading:
    """The reading without runs."""
    reading = accumulator(dialect)
    assert isinstance(reading, EventAccumulator)
    reading._skip = 10**9
    decoder = SSEDecoder()
    for each in [*decoder.feed(stream), *decoder.finish()]:
        reading.feed(each)
    return reading.finish()


@settings(max_examples=600)
@given(st.sampled_from(sorted(TEMPLATES)), st.data())
def test_runs_are_read_as_single_events(dialect: DialectName, draws: st.DataObject) -> None:
    """Escapes, quotes, halves of characters, control characters, anything in between, and windows of any size."""
    form = draws.draw(st.sampled_from(TEMPLATES[dialect]))
    plain = st.sampled_from((b"a", b" tok", b"\\n", b'\\"x', b"{}")).map(lambda text: form % text)
    odd = st.builds(
        lambda template, pieces: template % b"".join(pieces),
        st.one_of(st.just(form), st.sampled_from(TEMPLATES[dialect])),
        st.lists(st.sampled_from(PIECES), min_size=1, max_size=3),
    )
    noise = st.sampled_from(NOISE[dialect])
    before = draws.draw(st.lists(noise, max_size=3))
    parts = draws.draw(st.lists(st.one_of(plain, plain, plain, odd, noise), max_size=20))
    stream = varied(
        b"".join([*before, form % b"lead", form % b"lead2", form % b"lead3", *parts]),
        [
            b"0",
            b"1",
            *draws.draw(st.lists(st.sampled_from(NUMBERS[:4]) | st.sampled_from(NUMBERS))),
        ],
        [
            b"x",
            b"yz",
            *draws.draw(st.lists(st.sampled_from(PADDINGS[:3]) | st.sampled_from(PADDINGS))),
        ],
    )
    sizes = st.sampled_from((1, 150, 300, 800, 4096))
    with (
        patch.object(reading_module, "_SLICE_BYTES", draws.draw(sizes)),
        patch.object(runs_module, "_FIRST_WINDOW_BYTES", draws.draw(sizes)),
        patch.object(runs_module, "_LAST_WINDOW_BYTES", draws.draw(sizes)),
    ):
        assert repr(read_stream(dialect, [stream])) == repr(one_by_one(dialect, stream))


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param((b"\xc3", b"\xa9"), id="halves of a character"),
        pytest.param((b"\\ud83d", b"\\ude42"), id="halves of an escaped surrogate pair"),
        pytest.param((b"\\", b"n"), id="halves of an escape"),
        pytest.param((b"a\nb", b"c"), id="a line end within a text"),
        pytest.param((b'a","b":"c', b"c"), id="another field"),
        pytest.param((b"\x01", b"c"), id="a control character"),
    ],
)
def test_what_is_no_text_by_itself_is_not_joined(pieces: tuple[bytes, ...]) -> None:
    """Two events are two texts, even where their bytes together would mean something else."""
    stream = b"".join(CHAT % text for text in (b"lead", b"lead2", b"x", *pieces, b"y", b"z", b"e"))
    for slice_bytes in (1, 4096):
        with patch.object(reading_module, "_SLICE_BYTES", slice_bytes):
            assert repr(read_stream("chat", [stream])) == repr(one_by_one("chat", stream))


@pytest.mark.parametrize(
    ("dialect", "template"),
    [(dialect, template) for dialect in sorted(TEMPLATES) for template in TEMPLATES[dialect]],
)
def test_a_run_is_really_one(dialect: DialectName, template: bytes) -> None:
    """A plain stream is nearly all collected without parsing, and reads right."""
    decoder = SSEDecoder()
    reading = accumulator(dialect)
    assert isinstance(reading, EventAccumulator)
    numbers = [b"%d" % number for number in range(500)]
    events = template % b"x" + b"".join(template % (b"%d " % number) for number in range(100))
    for each in decoder.feed(varied(events, numbers, [b"padding", *numbers])):
        reading.feed(each)
    assert reading._run is not None and len(reading._run._pieces) >= 97
    expected = "x" + "".join(f"{number} " for number in range(100))
    assert expected in repr(reading.finish().response)


def test_events_that_never_repeat_are_not_tried_for_ever() -> None:
    """Other blanks in every chunk: the search for runs backs off."""
    reading = accumulator("chat")
    assert isinstance(reading, EventAccumulator)
    decoder = SSEDecoder()
    for number in range(600):
        chunk = b'data: {"id":"c",%s"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
        for each in decoder.feed(chunk % (b" " * (number % 97))):
            reading.feed(each)
    assert 5 < reading._fruitless < 12
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
