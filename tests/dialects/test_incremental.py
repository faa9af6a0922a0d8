"""Encoded streams are decoded as they go by, in any pieces, within a bound."""

from __future__ import annotations

import gzip

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.dialects.incremental import MAX_STEP_BYTES, incremental_decoder
from tests.dialects.test_encoding import BODY, ENCODERS, flushed, raw_deflate

ENCODED = {name: encode(BODY) for name, encode in ENCODERS.items()}


def decoded(encoding: str, data: bytes, size: int) -> bytes:
    """The bytes decoded in pieces."""
    decoder = incremental_decoder(encoding)
    return b"".join(decoder.feed(data[i : i + size]) for i in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 7, 1000, 1_000_000])
@pytest.mark.parametrize("encoding", ENCODERS)
def test_every_encoding_in_pieces(encoding: str, size: int) -> None:
    """Whatever the pieces; also members and frames one after another, and raw deflate."""
    assert decoded(encoding, ENCODED[encoding], size) == BODY
    assert decoded("gzip", ENCODED["gzip"] * 2, size) == BODY * 2
    assert decoded("zstd", ENCODED["zstd"] * 2, size) == BODY * 2
    assert decoded("deflate", raw_deflate(BODY), size) == BODY
    assert decoded("GZip, br", brotli.compress(gzip.compress(BODY)), size) == BODY


@pytest.mark.parametrize("encoding", ENCODERS)
def test_what_was_flushed_is_known_at_once(encoding: str) -> None:
    """The terminal event of a flushed stream is seen before the stream ends."""
    assert incremental_decoder(encoding).feed(flushed(encoding)) == BODY[:1000]


@pytest.mark.parametrize("encoding", ENCODERS)
def test_a_stream_that_expands_too_far_is_no_longer_followed(encoding: str) -> None:
    """One piece never becomes more than the bound, and nothing comes after it."""
    bomb = ENCODERS[encoding](b"x" * (3 * MAX_STEP_BYTES))
    decoder = incremental_decoder(encoding)
    assert decoder.feed(bomb) == b""
    assert decoder.feed(ENCODED[encoding]) == b""


def test_unknown_and_damaged_encodings_are_not_followed() -> None:
    """Nothing is seen, nothing is raised."""
    assert incremental_decoder("aes128gcm").feed(b"x") == b""
    decoder = incremental_decoder("zstd")
    assert decoder.feed(b"not zstd at all") == b"" and decoder.feed(ENCODED["zstd"]) == b""


@given(st.sampled_from([*ENCODERS, "gzip, br"]), st.lists(st.binary(max_size=50), max_size=6))
def test_any_bytes_are_harmless(encoding: str, pieces: list[bytes]) -> None:
    """Whatever comes, no exception and no more than the bound."""
    decoder = incremental_decoder(encoding)
    for piece in pieces:
        assert len(decoder.feed(piece)) <= MAX_STEP_BYTES


def test_a_zstd_slice_stays_within_the_bound() -> None:
    """The most that zstd makes of a slice is known before it is checked."""
    bomb = zstandard.ZstdCompressor().compress(b"\0" * (64 * MAX_STEP_BYTES))
    most = 0
    decoder = zstandard.ZstdDecompressor().decompressobj()
    for start in range(0, len(bomb), 64):
        most = max(most, len(decoder.decompress(bomb[start : start + 64])))
    assert most <= MAX_STEP_BYTES
