"""Usage is asked of the engine for those who did not, and kept from them; no other byte changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.dialects import UsageChunkFilter, add_stream_usage
from tests.dialects.facts import derived, line
from tests.dialects.streams import DONE, chat, chunkings, delta, odd_streams

USAGE = chat(usage={"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4})
TEXT = chat(delta(content='"usage" "choices":[]'), usage=None)


@pytest.mark.parametrize(
    ("dialect", "request_", "options"),
    [
        ("chat", {"stream": True}, {"include_usage": True}),
        ("completions", {"stream": True, "stream_options": None}, {"include_usage": True}),
        ("chat", {"stream": True, "stream_options": {"x": 1}}, {"x": 1, "include_usage": True}),
        ("chat", {"stream": True, "stream_options": {"include_usage": False}}, None),
        ("chat", {"stream": True, "stream_options": {"include_usage": True}}, None),
        ("chat", {"stream": True, "stream_options": "x"}, None),
        ("chat", {"stream": False}, None),
        ("chat", {"stream": "true"}, None),
        ("chat", {}, None),
        ("responses", {"stream": True}, None),
        ("messages", {"stream": True}, None),
    ],
)
def test_usage_is_asked_for_only_where_the_caller_left_it_open(
    dialect: Any, request_: dict[str, Any], options: dict[str, Any] | None
) -> None:
    """The caller's request is not changed; a caller who said what they want gets that."""
    before = repr(request_)
    asked = add_stream_usage(dialect, request_)
    assert asked == (None if options is None else {**request_, "stream_options": options})
    assert repr(request_) == before


def through(*chunks: bytes) -> tuple[bytes, UsageChunkFilter]:
    """The bytes that the caller gets."""
    kept_from = UsageChunkFilter()
    return b"".join([*(kept_from.feed(chunk) for chunk in chunks), kept_from.finish()]), kept_from


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 5, 10_000])
def test_the_usage_chunk_is_taken_out_and_nothing_else(end: bytes, size: int) -> None:
    """Whatever the line ends and the chunking."""
    before, usage, after = ((part.replace(b"\n", end)) for part in (TEXT + TEXT, USAGE, DONE))
    stream = before + usage + after
    sent, kept_from = through(*(stream[i : i + size] for i in range(0, len(stream), size)))
    assert sent == before + after
    assert b"".join(kept_from.dropped).strip() == usage.strip()


def test_events_are_passed_on_as_soon_as_they_are_whole() -> None:
    """Nothing waits for the next event."""
    kept_from = UsageChunkFilter()
    assert kept_from.feed(TEXT) == TEXT
    assert kept_from.feed(TEXT[:20]) == b""
    assert kept_from.feed(TEXT[20:] + USAGE[:30]) == TEXT
    assert kept_from.feed(USAGE[30:] + DONE[:4]) == b""
    assert kept_from.feed(DONE[4:]) == DONE


def test_a_usage_chunk_at_the_very_end_without_its_blank_line_is_taken_out() -> None:
    """Also when the engine closes the connection right after it."""
    sent, kept_from = through(TEXT, USAGE.rstrip(b"\n"))
    assert sent == TEXT and len(kept_from.dropped) == 1


def test_an_event_too_large_to_be_the_usage_chunk_is_not_held_back() -> None:
    """Memory stays bounded; the bytes go through; the usage chunk after it is still taken out."""
    large = chat(delta(content="x" * 100_000))
    kept_from = UsageChunkFilter()
    out = b"".join(kept_from.feed(large[i : i + 1000]) for i in range(0, 60_000, 1000))
    assert out == large[:60_000]
    assert kept_from.feed(large[60_000:] + USAGE + DONE) == large[60_000:] + DONE


@given(st.data())
def test_any_stream_passes_unchanged_but_for_its_usage_chunks(draws: st.DataObject) -> None:
    """However it is cut: what is sent, with what was taken out put back, is the stream."""
    stream = draws.draw(odd_streams()) + draws.draw(st.sampled_from((b"", USAGE, USAGE + DONE)))
    chunks = draws.draw(chunkings(stream))
    sent, kept_from = through(*chunks)
    whole, kept_whole = through(stream)
    if not kept_from.dropped:
        assert sent == stream
    assert len(sent) + sum(map(len, kept_from.dropped)) in (
        len(stream),
        len(stream) - len(kept_from.dropped),
    )
    assert sent.replace(b"\r\n", b"\n") == whole.replace(b"\r\n", b"\n")
    assert len(kept_from.dropped) == len(kept_whole.dropped)


def test_the_record_has_the_usage_that_the_caller_did_not_get() -> None:
    """The counts are in the record, with the chunk and the fact that it was asked for."""
    sent, kept_from = through(TEXT, USAGE, DONE)
    raw = line("chat", sent, streamed=True, notes=kept_from.notes())
    assert raw["stream_usage_requested"] is True and raw["stream_usage_chunk"] == USAGE.decode()
    assert raw["response_raw"] == (TEXT + DONE).decode()
    record = derived("chat", sent, streamed=True, notes=kept_from.notes())
    assert (record.tokens_in, record.tokens_out) == (3, 1) and record.stream_usage_requested
    none = line("chat", TEXT + DONE, streamed=True, notes=UsageChunkFilter().notes())
    assert none["response"]["usage"] is None and "stream_usage_chunk" not in none
