"""The scanner of the hot path finds exactly the terminal events that the full reading finds, and at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.dialects import DialectName, Terminal, TerminalScanner, read_stream
from otel_gym.dialects.terminal import MARKERS
from tests.dialects.streams import DIALECTS, DONE, chat, chunkings, data, delta, event, odd_streams


def scan(dialect: DialectName, *chunks: bytes) -> list[Terminal | None]:
    """What the scanner says after every chunk, and at the end."""
    scanner = TerminalScanner(dialect)
    return [*(scanner.feed(chunk) for chunk in chunks), scanner.finish()]


COMPLETED = event("response.completed", response={"id": "r", "status": "completed", "output": []})
STOP = event("message_stop")


@pytest.mark.parametrize(
    ("dialect", "stream", "terminal"),
    [
        ("responses", COMPLETED, "complete"),
        ("responses", event("response.incomplete", response={"id": "r"}), "incomplete"),
        ("responses", event("response.cancelled", response={"id": "r"}), "incomplete"),
        ("responses", event("response.failed", response={"id": "r"}), "error"),
        ("responses", event("error", code="x", message="m"), "error"),
        ("responses", data({"type": "response.completed", "response": {}}), "complete"),
        ("responses", b'event: response.completed\ndata: {"response": {}}\n\n', "complete"),
        ("responses", b'data: {"error": {"message": "m"}}\n\n', "error"),
        ("responses", DONE, None),
        ("responses", b'data: {"type":"response.c\\u006fmpleted"}\n\n', "complete"),
        ("chat", DONE, "complete"),
        ("chat", b"data:[DONE]\r\r", "complete"),
        ("chat", b"data: [DONE]", "complete"),
        ("chat", data({"error": {"message": "m"}}), "error"),
        ("chat", data({"error": None, "choices": []}), None),
        ("chat", data({"object": "error", "message": "m"}), "error"),
        ("chat", b"event: error\ndata: overloaded\n\n", "error"),
        ("chat", b'data: {"\\u0065rror": 1}\n\n', "error"),
        ("chat", chat(delta(content="[DONE] error data: [DONE]")), None),
        ("completions", DONE, "complete"),
        ("messages", STOP, "complete"),
        ("messages", b'data: {"type": "message_stop"}\n\n', "complete"),
        ("messages", b"event: message_stop\ndata: {}\n\n", "complete"),
        ("messages", event("error", error={"type": "overloaded_error"}), "error"),
        ("messages", DONE, None),
        ("messages", b"event: message_stop\n\n", None),
        ("messages", b'event: message_stop\ndata: {"type": "mess', None),
        ("responses", b'event: response.completed\ndata: {"type": "response.compl', None),
    ],
)
def test_terminal_events_of_every_dialect(
    dialect: DialectName, stream: bytes, terminal: Terminal | None
) -> None:
    """The rule table, in the scanner (whole and byte by byte) and in the full reading."""
    assert scan(dialect, stream)[-1] == terminal
    assert scan(dialect, *(stream[i : i + 1] for i in range(len(stream))))[-1] == terminal
    assert read_stream(dialect, [stream]).terminal == terminal


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_the_terminal_is_known_when_its_event_is_complete(end: bytes, size: int) -> None:
    """Not before the blank line, not after the chunk that holds it; of `[DONE]` at the end of its line."""
    lead = chat(delta(content="no error here, not [DONE]")) * 3
    for dialect, last, known_before in (
        ("chat", DONE, 1),
        ("messages", STOP, 0),
        ("responses", COMPLETED, 0),
    ):
        stream = (lead + last).replace(b"\n", end)
        scanner = TerminalScanner(dialect)  # type: ignore[arg-type]
        needed = len(stream) - known_before * len(end)
        if end == b"\r\n":
            needed -= 1  # the CR already ends the line
        for start in range(0, len(stream), size):
            chunk = stream[start : start + size]
            assert (scanner.feed(chunk) == "complete") == (start + len(chunk) >= needed)


def test_the_first_terminal_wins() -> None:
    """An error before `[DONE]` stays an error; `[DONE]` before an error stays complete."""
    error = data({"error": {"message": "m"}})
    assert scan("chat", error, DONE)[-1] == read_stream("chat", [error, DONE]).terminal == "error"
    assert (
        scan("chat", DONE, error)[-1] == read_stream("chat", [DONE, error]).terminal == "complete"
    )


def test_model_text_is_never_a_terminal() -> None:
    """Text that quotes terminal events, in tool arguments and in strings of other events, ends nothing."""
    quoted = 'data: [DONE]\n\nevent: message_stop\ndata: {"type":"response.completed"}\n\n"error"'
    for dialect, stream in (
        ("chat", chat(delta(content=quoted))),
        ("chat", chat(delta(tool_calls=[{"index": 0, "function": {"arguments": quoted}}]))),
        (
            "messages",
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": quoted}),
        ),
        ("responses", event("response.output_text.delta", output_index=0, delta=quoted)),
        ("responses", event("response.output_item.done", item={"type": "response.completed"})),
    ):
        pieces = [stream[i : i + 3] for i in range(0, len(stream), 3)]
        assert set(scan(dialect, *pieces)) == {None}  # type: ignore[arg-type]


@settings(max_examples=300)
@given(st.sampled_from(DIALECTS), st.data())
def test_scanner_and_full_reading_agree_on_any_stream(
    dialect: DialectName, draws: st.DataObject
) -> None:
    """Whatever the stream and however it is cut, the scanner misses nothing and invents nothing."""
    stream = draws.draw(odd_streams())
    chunks = draws.draw(chunkings(stream))
    assert scan(dialect, *chunks)[-1] == read_stream(dialect, chunks).terminal


@given(st.sampled_from(DIALECTS), st.data())
def test_scanner_agrees_after_much_plain_text(dialect: DialectName, draws: st.DataObject) -> None:
    """Also when finished events have been forgotten before, whatever their line ends."""
    end = draws.draw(st.sampled_from((b"\n", b"\r\n", b"\r")))
    lead = chat(delta(content="x" * 300)).replace(b"\n", end) * 60
    stream = lead + draws.draw(odd_streams())
    size = draws.draw(st.integers(1, 700))
    chunks = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert scan(dialect, *chunks)[-1] == read_stream(dialect, chunks).terminal


ALIKE = (
    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"text":"%s"}],"x":"y"}\r\n\r\n',
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}\n\n',
    b'data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"%s"}\n\n',
    b'data: "%s"\n\n',
)
TEXTS = (
    b"a", b"", b" tok", b"err", b"or", b"error", b'","error":"x', b'\\', b"u00", b"\\u0065", b'"', b'""', b"[DONE]", b"[DO",
    b'x"}\n\ndata: [DONE]\n\ndata: {"', b"x\n\ndata:[DONE]\n\n", b"\n\n", b"\r", b'"type":"message_stop', b"omplete",
    b'","type":"response.failed', b'"},"error":{"a":"',
)  # fmt: skip


@settings(max_examples=1500)
@given(st.sampled_from(DIALECTS), st.data())
def test_chunks_that_are_alike_are_scanned_as_if_they_were_not(
    dialect: DialectName, draws: st.DataObject
) -> None:
    """What is known of earlier chunks hides no terminal and finds none: every chunk is judged as without that knowledge."""
    text = st.one_of(st.sampled_from(TEXTS), st.sampled_from(TEXTS[:5]))
    template = st.sampled_from(draws.draw(st.lists(st.sampled_from(ALIKE), min_size=1, max_size=2)))
    one = st.builds(lambda form, *texts: form % b"".join(texts), template, text, text)
    part = st.one_of(one, one, one, st.sampled_from((DONE, STOP, b": hi\n\n", b"data: {", b"\n")))
    chunks = [*draws.draw(st.lists(one, max_size=4)), *draws.draw(st.lists(part, max_size=8))]
    plain = TerminalScanner(dialect)
    plain._patience = 0
    assert scan(dialect, *chunks) == [*(plain.feed(chunk) for chunk in chunks), plain.finish()]


def test_what_is_plain_in_one_dialect_may_end_a_stream_of_another() -> None:
    """A text known from a chat stream is not taken for plain where it is a marker of Messages."""
    assert set(scan("chat", *(ALIKE[0] % text for text in (b"a", b"b", b"message_stop")))) == {None}
    kinds = (b"one", b"two", b"three", b"message_stop")
    assert scan("messages", *(b'data: {"type":"%s"}\n\n' % kind for kind in kinds)) == [
        *(None, None, None),
        *("complete", "complete"),
    ]


def test_a_marker_is_not_hidden_in_what_chunks_have_in_common() -> None:
    """Half of a marker in every chunk and the other half in one: what is alike ends at a quote."""
    assert set(scan("messages", *(ALIKE[2] % text for text in (b"a", b"b", b"p", b"m")))) == {None}
    for kinds in ((b"message_sto1", b"message_sto2"), (b"1essage_stop", b"2essage_stop")):
        chunks = (b'data: {"type":"%s"}\n\n' % kind for kind in (*kinds, b"message_stop"))
        assert scan("messages", *chunks)[-1] == "complete"


@pytest.mark.parametrize("form", ALIKE)
def test_chunks_that_are_alike_are_found_to_be(form: bytes) -> None:
    """A stream of one form is learned at its second chunk, and stays so."""
    scanner = TerminalScanner("completions")
    for number in range(100):
        assert scanner.feed(form % b"%d" % number) is None
        assert (scanner._lead is None) == (number < 1)
    assert scanner._patience > 0


def test_chunks_that_are_never_alike_are_not_compared_for_ever() -> None:
    """Random padding in every chunk: the search for what is alike ends."""
    scanner = TerminalScanner("chat")
    for number in range(2000):
        scanner.feed(chat(delta(content="a"), obfuscation=f"{number * 7919}" * 3))
    assert scanner._patience <= 0 and scanner._lead is None


def test_no_marker_holds_a_quote() -> None:
    """The proof that a marker cannot begin before a text and end in it needs this."""
    assert not any(b'"' in marker for markers in MARKERS.values() for marker in markers)


def test_memory_of_the_scanner_is_one_event() -> None:
    """A long stream whose chunks never end with an event leaves no trace of the finished ones."""
    scanner = TerminalScanner("chat")
    chunk = chat(delta(content="x" * 300))
    shifted = chunk[10:] + chunk[:10]
    for _ in range(5000):
        scanner.feed(shifted)
    assert scanner._block_bytes < 64 * 1024
