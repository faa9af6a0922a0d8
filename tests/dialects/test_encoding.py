"""Content encodings: decoded within a bound, truncated bodies as far as they go, everything else an error."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.dialects import EncodingError, decode_body

BODY = b'{"text": "' + b"Now is the time. " * 2000 + b'"}'
LIMIT = 1024 * 1024


def raw_deflate(data: bytes) -> bytes:
    """Deflate without the zlib header, as some servers send it."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("encoding", ENCODERS)
def test_every_encoding_is_decoded(encoding: str) -> None:
    """Also spelled in upper case, with `identity`, and of an empty body."""
    encoded = ENCODERS[encoding](BODY)
    assert decode_body(encoding, encoded, LIMIT) == BODY
    assert decode_body(f" {encoding.upper()} , identity", encoded, LIMIT) == BODY
    assert decode_body(encoding, b"", LIMIT) == b""


def test_chains_are_decoded_in_reverse_order() -> None:
    """`Content-Encoding: gzip, br` was compressed with gzip first."""
    assert decode_body("gzip, br", brotli.compress(gzip.compress(BODY)), LIMIT) == BODY


def test_odd_but_valid_bodies_are_decoded() -> None:
    """Raw deflate, several gzip members, several zstd frames, a zstd frame without its size."""
    assert decode_body("deflate", raw_deflate(BODY), LIMIT) == BODY
    assert decode_body("gzip", gzip.compress(BODY) + gzip.compress(b"x"), LIMIT) == BODY + b"x"
    pack = zstandard.ZstdCompressor()
    assert decode_body("zstd", pack.compress(BODY) + pack.compress(b"x"), LIMIT) == BODY + b"x"
    stream = pack.compressobj()
    assert decode_body("zstd", stream.compress(BODY) + stream.flush(), LIMIT) == BODY
    assert decode_body("", BODY, LIMIT) == BODY


def flushed(encoding: str) -> bytes:
    """A compressed body whose sender flushed in the middle and then went away."""
    half = BODY[:1000]
    if encoding == "br":
        packer = brotli.Compressor()
        return bytes(packer.process(half) + packer.flush())
    if encoding == "zstd":
        zstd = zstandard.ZstdCompressor().compressobj()
        return zstd.compress(half) + zstd.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    packed = zlib.compressobj(wbits=31 if encoding.endswith("gzip") else 15)
    return packed.compress(half) + packed.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize("encoding", ENCODERS)
def test_a_truncated_body_is_decoded_as_far_as_it_goes(encoding: str) -> None:
    """What was flushed before the cut is there."""
    assert decode_body(encoding, flushed(encoding), LIMIT) == BODY[:1000]


@pytest.mark.parametrize("encoding", ENCODERS)
def test_expansion_is_bounded(encoding: str) -> None:
    """A body is decoded up to the bound and not a byte further; below it, whole."""
    encoded = ENCODERS[encoding](b"x" * 10_000_000)
    with pytest.raises(EncodingError, match="more than 1000 bytes") as caught:
        decode_body(encoding, encoded, 1000)
    assert len(caught.value.partial) <= 1000
    assert decode_body(encoding, ENCODERS[encoding](b"x" * 1000), 1000) == b"x" * 1000


def test_unknown_encodings_are_an_error() -> None:
    """The error names the encoding."""
    with pytest.raises(EncodingError, match="'compress' is not known"):
        decode_body("compress", b"x", LIMIT)


@given(st.sampled_from(sorted(ENCODERS)), st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(encoding: str, data: bytes) -> None:
    """No other exception, and never more than the bound."""
    try:
        assert len(decode_body(encoding, data, 5000)) <= 5000
    except EncodingError as error:
        assert len(error.partial) <= 5000


@given(st.sampled_from(sorted(ENCODERS)), st.binary(max_size=2000), st.data())
def test_damaged_bodies_are_decoded_or_refused(
    encoding: str, body: bytes, draws: st.DataObject
) -> None:
    """A valid body comes back; with a byte changed or cut off there is no other exception."""
    encoded = bytearray(ENCODERS[encoding](body))
    assert decode_body(encoding, bytes(encoded), 2000) == body
    position = draws.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= draws.draw(st.integers(1, 255))
    for damaged in (bytes(encoded), bytes(encoded[:position])):
        try:
            decode_body(encoding, damaged, 5000)
        except EncodingError as error:
            assert error.partial is not None
