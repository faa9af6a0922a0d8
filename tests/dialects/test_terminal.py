"""The scanner of the hot path finds exactly the terminal events that the full reading finds, and at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.dialects import DialectName, Terminal, TerminalScanner, read_stream
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


def test_memory_of_the_scanner_is_one_event() -> None:
    """A long stream whose chunks never end with an event leaves no trace of the finished ones."""
    scanner = TerminalScanner("chat")
    chunk = chat(delta(content="x" * 300))
    shifted = chunk[10:] + chunk[:10]
    for _ in range(5000):
        scanner.feed(shifted)
    assert scanner._block_bytes < 64 * 1024
