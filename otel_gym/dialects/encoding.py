"""Content encodings, decoded for the record with a bound on what they may expand to.

RFC 9110 section 8.4: `gzip`, `x-gzip`, `deflate` (zlib, and raw as some send it), `br`, `zstd`,
`identity`, and chains of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import brotli
import zstandard

from otel_gym.errors import DialectError

_STEP_BYTES = 256 * 1024


class _Bounded:
    """Collects decoded bytes up to a bound."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self.encoding = encoding
        self.max_bytes = max_bytes
        self.parts: list[bytes] = []
        self.size_bytes = 0

    def add(self, data: bytes) -> None:
        self.size_bytes += len(data)
        if self.size_bytes > self.max_bytes:
            raise DialectError(
                f"content-encoding {self.encoding}: more than {self.max_bytes} bytes when decoded"
            )
        if data:
            self.parts.append(data)

    def room(self) -> int:
        """How many bytes to ask for next: one more than fits, so that the bound is noticed."""
        return min(_STEP_BYTES, self.max_bytes - self.size_bytes + 1)


def _zlib(data: bytes, out: _Bounded, wbits: int) -> None:
    while data:
        decoder = zlib.decompressobj(wbits)
        rest = data
        while rest and not decoder.eof:
            out.add(decoder.decompress(rest, out.room()))
            rest = decoder.unconsumed_tail
        out.add(decoder.flush()) if decoder.eof else None
        if not decoder.eof:
            while True:
                more = decoder.decompress(b"", out.room())
                if not more:
                    break
                out.add(more)
            return
        data = decoder.unused_data
        if wbits != 31 or not data.startswith(b"\x1f\x8b"):
            return


def _gzip(data: bytes, out: _Bounded) -> None:
    _zlib(data, out, 31)


def _deflate(data: bytes, out: _Bounded) -> None:
    try:
        _zlib(data, out, 15)
    except zlib.error:
        if out.parts:
            raise
        _zlib(data, out, -15)


def _brotli(data: bytes, out: _Bounded) -> None:
    decoder = brotli.Decompressor()
    out.add(decoder.process(data, output_buffer_limit=out.room()))
    while not decoder.can_accept_more_data():
        more = decoder.process(b"", output_buffer_limit=out.room())
        if not more:
            break
        out.add(more)


def _zstd(data: bytes, out: _Bounded) -> None:
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    while True:
        part = reader.read(out.room())
        if not part:
            return
        out.add(part)


_CODECS: dict[str, Callable[[bytes, _Bounded], None]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}


def encodings(header: str) -> list[str]:
    """The encodings that a Content-Encoding header names, in the order in which they were applied."""
    names = (part.strip().lower() for part in header.split(","))
    return [name for name in names if name not in ("", "identity")]


def decode_body(encoding: str, data: bytes, max_bytes: int) -> bytes:
    """The body with its content encodings removed; of a truncated one, as much as can be decoded.

    Raises DialectError for an encoding that is not known, for bytes that are not in it, and where the
    result would be larger than `max_bytes`; `partial` of the error holds what had been decoded.
    """
    for name in reversed(encodings(encoding)):
        codec = _CODECS.get(name)
        if codec is None:
            raise EncodingError(f"content-encoding {name!r} is not known", b"")
        out = _Bounded(name, max_bytes)
        try:
            codec(data, out)
        except DialectError as error:
            raise EncodingError(str(error), b"".join(out.parts)) from None
        except (zlib.error, brotli.error, zstandard.ZstdError) as error:
            raise EncodingError(f"content-encoding {name}: {error}", b"".join(out.parts)) from error
        data = b"".join(out.parts)
    return data


class EncodingError(DialectError):
    """A body that its content encoding cannot decode; `partial` is what came before the fault."""

    def __init__(self, message: str, partial: bytes) -> None:
        super().__init__(message)
        self.partial = partial
