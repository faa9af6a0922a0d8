"""The tape keeps a body whole up to its bound, then head, tail, size and digest."""

from __future__ import annotations

import hashlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.capture.tape import BodyTape


def taped(max_bytes: int, *chunks: bytes) -> BodyTape:
    """A tape with the chunks on it."""
    tape = BodyTape(max_bytes)
    for chunk in chunks:
        tape.append(chunk)
    return tape


def test_a_body_within_the_bound_is_kept_whole() -> None:
    """Exactly the bound is still within it."""
    tape = taped(10, b"01234", b"", b"56789")
    assert tape.data() == b"0123456789" and not tape.cut and tape.digest is None
    assert (tape.size_bytes, tape.head_bytes, tape.tail_bytes) == (10, 10, 0)
    assert tape.head() == tape.data() and tape.tail() == b""


def test_a_body_above_the_bound_keeps_head_tail_size_and_digest() -> None:
    """Half of the bound from the beginning, half from the end."""
    body = bytes(range(200))
    tape = taped(10, *(body[i : i + 7] for i in range(0, 200, 7)))
    assert tape.cut and tape.size_bytes == 200
    assert tape.head() == body[:5] and tape.tail() == body[-5:]
    assert tape.data() == body[:5] + body[-5:] == b"".join(tape.chunks())
    assert tape.digest == hashlib.sha256(body).hexdigest()


@given(st.integers(0, 40), st.lists(st.binary(max_size=30), max_size=30), st.integers(0, 29))
def test_any_chunks(max_bytes: int, chunks: list[bytes], look: int) -> None:
    """Whatever the bound and the chunks, looking at the tape in between changes nothing."""
    body = b"".join(chunks)
    tape = BodyTape(max_bytes)
    for number, chunk in enumerate(chunks):
        tape.append(chunk)
        if number == look:
            tape.data(), tape.digest
    assert tape.size_bytes == len(body) and tape.cut == (len(body) > max_bytes)
    if tape.cut:
        head = max_bytes // 2
        tail = min(max_bytes - head, len(body) - head)
        assert tape.head() == body[:head] and tape.tail() == body[len(body) - tail :]
        assert (tape.head_bytes, tape.tail_bytes) == (head, tail)
        assert tape.digest == hashlib.sha256(body).hexdigest()
    else:
        assert tape.data() == body


@pytest.mark.parametrize("size", [1, 100, 70_000])
def test_memory_is_bounded_whatever_the_chunking(size: int) -> None:
    """A long stream in small pieces takes little more than the bound."""
    bound = 1_000_000
    chunks = 3_000_000 // size if size > 1 else 400_000
    tracemalloc.start()
    tape = BodyTape(bound)
    for number in range(chunks):
        tape.append(bytes([number % 256]) * size)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tape.size_bytes == chunks * size
    assert kept < 1.6 * bound + 400_000 and peak < 4 * bound


def test_digests_of_large_bodies_are_right() -> None:
    """Blocks that were hashed as they came, and the rest, make the digest of the whole."""
    chunk = bytes(range(256)) * 300
    tape = taped(4_000_000, *([chunk] * 80))
    assert tape.cut and tape.digest == hashlib.sha256(chunk * 80).hexdigest()
    assert tape.tail() == (chunk * 80)[-2_000_000:]
