"""Decoding an encoded event stream as it goes by, only to see its terminal event in time; the record decodes the whole body again."""

from __future__ import annotations

import zlib
from typing import Final, Protocol

import brotli
import zstandard

from otel_gym.dialects.encoding import encodings

MAX_STEP_BYTES: Final = 4 * 1024 * 1024
"""Most bytes that one piece may decode to; a stream that expands further is no longer followed."""
_ZSTD_SLICE_BYTES: Final = 64
"""Compressed bytes given to zstd at once: it has no bound of its own, and these expand to 4 MiB at most."""


class _Codec(Protocol):
    def feed(self, piece: bytes) -> bytes:
        """What `piece` decodes to. Raises ValueError where it expands too far, or the codec's own error."""


class IncrementalDecoder:
    """`feed(piece) -> decoded bytes` for a Content-Encoding value; after damage it returns nothing more."""

    def __init__(self, encoding: str) -> None:
        names = encodings(encoding)
        self._codecs: list[_Codec] | None = None
        if all(name in _CODECS for name in names):
            self._codecs = [_CODECS[name]() for name in reversed(names)]

    def feed(self, piece: bytes) -> bytes:
        """What `piece` decodes to, as far as it is known yet."""
        if self._codecs is None:
            return b""
        try:
            for codec in self._codecs:
                piece = codec.feed(piece)
        except (ValueError, zlib.error, brotli.error, zstandard.ZstdError, EOFError):
            self._codecs = None
            return b""
        return piece


def incremental_decoder(encoding: str) -> IncrementalDecoder:
    """A decoder for a Content-Encoding value, chains included; one that follows nothing where a coding is unknown."""
    return IncrementalDecoder(encoding)


class _Gzip:
    """One gzip member after the other."""

    _wbits = 31

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(self._wbits)

    def feed(self, piece: bytes) -> bytes:
        out = b""
        while piece:
            out += self._decoder.decompress(piece, MAX_STEP_BYTES + 1 - len(out))
            if len(out) > MAX_STEP_BYTES:
                raise ValueError("expands too far")
            if not self._decoder.eof:
                break
            piece = self._decoder.unused_data
            self._decoder = zlib.decompressobj(self._wbits)
        return out


class _Deflate:
    """Zlib, or raw deflate, as the first piece tells."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(15)
        self._begun = b""

    def feed(self, piece: bytes) -> bytes:
        if len(self._begun) < 2:
            self._begun += piece
            if len(self._begun) < 2:
                return b""
            piece = self._begun
            if piece[0] & 15 != 8 or int.from_bytes(piece[:2], "big") % 31:
                self._decoder = zlib.decompressobj(-15)
        out = self._decoder.decompress(piece, MAX_STEP_BYTES + 1)
        if len(out) > MAX_STEP_BYTES:
            raise ValueError("expands too far")
        return out


class _Brotli:
    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()

    def feed(self, piece: bytes) -> bytes:
        out = bytes(self._decoder.process(piece, output_buffer_limit=MAX_STEP_BYTES))
        if not self._decoder.can_accept_more_data():
            raise ValueError("expands too far")
        return out


class _Zstd:
    """One zstd frame after the other."""

    def __init__(self) -> None:
        self._decoder = zstandard.ZstdDecompressor().decompressobj()

    def feed(self, piece: bytes) -> bytes:
        parts: list[bytes] = []
        size = 0
        for start in range(0, len(piece), _ZSTD_SLICE_BYTES):
            rest = piece[start : start + _ZSTD_SLICE_BYTES]
            while rest:
                parts.append(self._decoder.decompress(rest))
                size += len(parts[-1])
                if size > MAX_STEP_BYTES:
                    raise ValueError("expands too far")
                rest = b""
                if self._decoder.eof:
                    rest = self._decoder.unused_data
                    self._decoder = zstandard.ZstdDecompressor().decompressobj()
        return b"".join(parts)


_CODECS: Final[dict[str, type[_Codec]]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
