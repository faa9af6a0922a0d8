"""Decoding an encoded event stream as it goes by, only to see its terminal event in time; the record decodes the whole body again."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import brotli
import zstandard

MAX_STEP_BYTES: Final = 4 * 1024 * 1024
"""Most bytes that one piece may decode to; a stream that expands further is no longer followed."""


class IncrementalDecoder:
    """`feed(piece) -> decoded bytes` for one content coding; after damage it returns nothing more."""

    def __init__(self, encoding: str) -> None:
        self._decode = _decoder(encoding)

    def feed(self, piece: bytes) -> bytes:
        """What `piece` decodes to, as far as it is known yet."""
        if self._decode is None:
            return b""
        try:
            data = self._decode(piece)
        except (zlib.error, brotli.error, zstandard.ZstdError, EOFError):
            self._decode = None
            return b""
        if len(data) > MAX_STEP_BYTES:
            self._decode = None
            return b""
        return data


def incremental_decoder(encoding: str) -> IncrementalDecoder:
    """A decoder for a Content-Encoding value; one that follows nothing where the coding is unknown or a chain."""
    return IncrementalDecoder(encoding)


def _decoder(encoding: str) -> Callable[[bytes], bytes] | None:
    if encoding in ("gzip", "x-gzip"):
        return _bounded_zlib(31)
    if encoding == "deflate":
        return _bounded_zlib(15)
    if encoding == "br":
        decompressor = brotli.Decompressor()
        return lambda piece: bytes(
            decompressor.process(piece, output_buffer_limit=MAX_STEP_BYTES + 1)
        )
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress
    return None


def _bounded_zlib(wbits: int) -> Callable[[bytes], bytes]:
    decompressor = zlib.decompressobj(wbits)
    return lambda piece: decompressor.decompress(piece, MAX_STEP_BYTES + 1)
