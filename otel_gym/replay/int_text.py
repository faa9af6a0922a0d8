"""JSON text of a regular integer array -> numpy, at memory speed and without a Python object a number.

A text is accepted only when it is exactly what a compact JSON writer gives for the resulting array, so
acceptance proves that the array replays as the same JSON value. Everything else gives null: ragged or
empty lists, floats, booleans, nulls, integers of more than 18 digits, invalid JSON.

The proof needs no second pass over the text. Let the numbers end at positions e0, e1, ...; after the last
number of each row come at least the bytes that the shape wants there (`],[`, or more brackets, compared byte
by byte), and at least one byte after each other number. If the count of bytes that are not digits equals the
sum of what the shape wants, there is nothing else between the numbers; if there is one comma less than there
are numbers, that one byte is a comma everywhere. (A minus sign counts as part of its number, and must not
follow a digit.) If the count of digits equals the sum of the canonical
lengths of the values read, no number has a leading zero or more digits than were read.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[Any]

_CHUNK_BYTES: Final = 1 << 17  # temporaries of one chunk stay in the second-level cache
_MAX_DEPTH: Final = 8
_MAX_DIGITS: Final = 18  # every such number fits an int64
_SPACES: Final = (b" ", b"\n", b"\t", b"\r")
_SPLIT_NUMBER: Final = re.compile(rb"[0-9-][ \t\r\n]+[0-9-]")
_COMMA, _MINUS, _ZERO = 44, 45, 48


def parse_int_array(text: bytes, start: int = 0, end: int | None = None) -> Ints | None:
    """The integers of the JSON array text in `text[start:end]`, or null if it is not regular.

    The type is int16 or int64, not yet narrowed.
    """
    end = len(text) if end is None else end
    array = _parse_compact(text, start, end)
    if array is not None or all(text.find(space, start, end) < 0 for space in _SPACES):
        return array
    spaced = text[start:end]
    if _SPLIT_NUMBER.search(spaced):
        return None
    compact = spaced.translate(None, b"".join(_SPACES))
    return _parse_compact(compact, 0, len(compact))


def _parse_compact(text: bytes, start: int, end: int) -> Ints | None:
    opening = text[start : min(end, start + _MAX_DEPTH + 2)]
    depth = len(opening) - len(opening.lstrip(b"["))
    if not 1 <= depth <= _MAX_DEPTH or not text.endswith(b"]" * depth, start, end):
        return None
    if opening[depth] not in b"-0123456789":
        return None
    columns = text.count(b",", start, text.find(b"]", start, end)) + 1
    scan = _Scan(text, (start, end), depth, columns)
    values = scan.short_values() if text.find(b"-", start, end) < 0 else None
    if values is None:
        values = scan.long_values()
    if values is None:
        return None
    shape = scan.shape()
    return None if shape is None else values.reshape(shape)


class _Scan:
    """One array text being read: where its numbers end, and whether that agrees with a regular shape."""

    def __init__(self, text: bytes, span: tuple[int, int], depth: int, columns: int) -> None:
        self.text = text
        self.span = span
        self.bytes: Bytes = np.frombuffer(text, np.uint8, span[1] - span[0], span[0])
        self.depth = depth
        self.columns = columns
        self._begin()

    def _chunks(self) -> list[tuple[int, int]]:
        """Slices of the array's text, each ending after a comma or at the text's end."""
        spans = []
        first, last = self.span
        start = first
        while start < last:
            end = last
            if last - start > _CHUNK_BYTES:
                end = self.text.rfind(b",", start, start + _CHUNK_BYTES) + 1
                if end <= start:
                    return []
            spans.append((start - first, end - first))
            start = end
        return spans

    def _begin(self) -> None:
        self.count = self.commas = self.other_bytes = 0
        self.row_ends: list[npt.NDArray[np.int64]] = []

    def _separators(self, chunk: Bytes, ends: npt.NDArray[np.int64], start: int) -> None:
        """Count numbers and commas, and remember where rows end."""
        self.commas += int(np.count_nonzero(chunk == _COMMA))
        first_row_end = (self.columns - 1 - self.count) % self.columns
        self.row_ends.append(ends[first_row_end :: self.columns] + start)
        self.count += len(ends)

    def short_values(self) -> Ints | None:
        """The values where all are non-negative and have at most three digits, else null."""
        self._begin()
        read: list[npt.NDArray[np.int16]] = []
        digits = canonical = 0
        for start, end in self._chunks():
            chunk = self.bytes[start:end]
            digit = chunk - np.uint8(_ZERO)
            is_digit = digit < 10
            as_number = is_digit.view(np.uint8)
            digit *= as_number
            tens = digit[:-1] * np.uint8(10)
            low = digit.copy()
            low[1:] += tens
            value = low.astype(np.int16)
            hundreds = (digit[:-2] * as_number[1:-1]).astype(np.int16)
            hundreds *= np.int16(100)
            value[2:] += hundreds
            ends = np.flatnonzero(is_digit[:-1] > is_digit[1:])
            values = value.take(ends)
            chunk_digits = int(np.count_nonzero(is_digit))
            digits += chunk_digits
            self.other_bytes += (end - start) - chunk_digits
            canonical += (
                len(values) + int(np.count_nonzero(values > 9)) + int(np.count_nonzero(values > 99))
            )
            self._separators(chunk, ends, start)
            if digits != canonical:
                return None
            read.append(values)
        if not read:
            return None
        return np.concatenate(read)

    def long_values(self) -> Ints | None:
        """The values where some are negative or longer than three digits, else null."""
        self._begin()
        read: list[npt.NDArray[np.int64]] = []
        for start, end in self._chunks():
            chunk = self.bytes[start:end]
            digit = chunk - np.uint8(_ZERO)
            is_digit = digit < 10
            ends = np.flatnonzero(is_digit[:-1] > is_digit[1:])
            starts = np.flatnonzero(is_digit[1:] > is_digit[:-1]) + 1
            if is_digit[0]:
                starts = np.concatenate([np.zeros(1, np.int64), starts])
            if len(starts) != len(ends):
                return None
            lengths = ends - starts + 1
            longest = int(lengths.max(initial=0))
            if longest > _MAX_DIGITS:
                return None
            values = np.zeros(len(ends), np.int64)
            scale = 1
            for position in range(longest):
                has_digit = lengths > position
                places = digit.take(ends - position, mode="clip").astype(np.int64)
                values += np.where(has_digit, places, 0) * scale
                scale *= 10
            leading_zero = (chunk.take(starts) == _ZERO) & (lengths > 1)
            negative = (starts > 0) & (chunk.take(starts - 1, mode="clip") == _MINUS)
            signed_to_digit = negative & (starts > 1) & is_digit.take(starts - 2, mode="clip")
            if (leading_zero | signed_to_digit | (negative & (values == 0))).any():
                return None
            np.negative(values, out=values, where=negative)
            signs = int(np.count_nonzero(negative))
            self.other_bytes += (end - start) - int(np.count_nonzero(is_digit)) - signs
            self._separators(chunk, ends, start)
            read.append(values)
        if not read:
            return None
        return np.concatenate(read)

    def shape(self) -> tuple[int, ...] | None:
        """The array's shape, if every separator of the text is where that shape wants it."""
        if not self.count or self.count % self.columns or self.commas != self.count - 1:
            return None
        shape = [self.columns]
        wanted = self.depth + (self.count - self.count // self.columns)
        ends = np.concatenate(self.row_ends)
        closed = 1
        # From the innermost list outwards: `ends` are the last numbers of the lists with `closed` brackets.
        while closed < self.depth:
            if int(ends[-1]) + self.depth + 1 != len(self.bytes):
                return None
            after = self.bytes.take(ends + closed + 1, mode="clip")
            closing = after == ord("]")
            inner = int(np.argmax(closing)) + 1
            if len(ends) % inner:
                return None
            outer = np.zeros(len(ends), dtype=bool)
            outer[inner - 1 :: inner] = True
            if not np.array_equal(closing, outer):
                return None
            if not self._gaps_are(ends[~outer], closed):
                return None
            wanted += int(np.count_nonzero(~outer)) * (2 * closed + 1)
            shape.append(inner)
            ends = ends[outer]
            closed += 1
        if len(ends) != 1 or int(ends[0]) + self.depth + 1 != len(self.bytes):
            return None
        if not all(self.bytes[-self.depth :] == ord("]")):
            return None
        wanted += self.depth
        return tuple(reversed(shape)) if wanted == self.other_bytes else None

    def _gaps_are(self, ends: npt.NDArray[np.int64], closed: int) -> bool:
        """Whether `closed` brackets close, a comma follows and as many open after each of `ends`."""
        gap = b"]" * closed + b"," + b"[" * closed
        return all(
            bool((self.bytes.take(ends + position, mode="clip") == byte).all())
            for position, byte in enumerate(gap, start=1)
        )
