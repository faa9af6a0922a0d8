"""numpy array -> compact JSON text, without a Python object a number.

Arrays of small non-negative integers (routed experts) are made from tables that hold each number's text
with its separator. Bytes go two numbers at a time: each pair's text, zeros behind it, is written where the
text before it ends, so that it covers the zeros of that one. Numbers up to 999 are laid out four bytes each
and the unused bytes leave in one pass. All others go through orjson.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

Piece: TypeAlias = bytes | memoryview
"""A part of a text, to be joined with the others."""

Array = npt.NDArray[Any]

_TABLE_SIZE: Final = 1000  # three digits and one separator fill four bytes
_TABLES_FROM: Final = 256  # fewer numbers are not worth a table
_PIECE_VALUES: Final = 1 << 17  # bounds the memory of one piece's layout to about 2 MiB
_GAPS: Final = (",[", "],[[", "", "]", "]]")
"""What follows a row: the next row, the next group of rows, the end of one, two or three dimensions."""


def json_pieces(array: Array) -> Iterator[Piece]:
    """The compact JSON text of an integer or float64 array of one or more dimensions, in pieces."""
    if array.dtype.kind in "iu" and array.size >= _TABLES_FROM and array.ndim <= 3:
        if array.dtype == np.uint8 and array.shape[-1] % 2 == 0 and _writes_in_order():
            return _pair_pieces(array)
        if int(array.max()) < _TABLE_SIZE and int(array.min()) >= 0:
            return _table_pieces(array)
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return iter((orjson.dumps(native, option=orjson.OPT_SERIALIZE_NUMPY),))


def _table_pieces(array: Array) -> Iterator[Piece]:
    """Each number's text in four bytes; after each row one word more, for what follows the row."""
    yield b"[" * array.ndim
    for part, first in _parts(array):
        layout = np.empty((len(part), part.shape[1] + 1), dtype=np.uint32)
        layout[:, :-1] = _number_texts(",").take(part)
        layout[:, -2] = _number_texts("]").take(part[:, -1])
        _put_gaps(layout[:, -1], _words(_GAPS, np.uint32), array, first)
        yield layout.tobytes().translate(None, b"\0")


def _pair_pieces(array: Array) -> Iterator[Piece]:
    """Two numbers' text in eight bytes, each written where the one before it ends."""
    yield b"[" * array.ndim
    inner, inner_lengths = _pair_texts(",")
    last, last_lengths = _pair_texts("]")
    for part, first in _parts(array):
        pairs = np.ascontiguousarray(part).view("<u2")
        layout = np.empty((len(pairs), pairs.shape[1] + 1), dtype=np.uint64)
        lengths = np.empty(layout.shape, dtype=np.uint8)
        layout[:, :-1] = inner.take(pairs)
        lengths[:, :-1] = inner_lengths.take(pairs)
        layout[:, -2] = last.take(pairs[:, -1])
        lengths[:, -2] = last_lengths.take(pairs[:, -1])
        _put_gaps(layout[:, -1], _words(_GAPS, np.uint64), array, first)
        _put_gaps(lengths[:, -1], np.array([len(gap) for gap in _GAPS]), array, first)
        yield _overlaid(layout.reshape(-1), lengths.reshape(-1))


def _overlaid(words: Array, lengths: Array) -> memoryview:
    """Texts of eight zero-filled bytes each, joined at their own lengths.

    Each is written whole, in order, at the end of the one before it: zeros are covered by what follows.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    size = int(ends[-1])
    text = np.empty(size + 8, dtype=np.uint8)
    anywhere = np.ndarray((size + 1,), dtype=np.uint64, buffer=text.data, strides=(1,))
    anywhere[ends - lengths] = words
    return text.data[:size]


@cache
def _writes_in_order() -> bool:
    """Whether this numpy writes indexed values one after the other, as `_overlaid` needs.

    It always has; but it does not promise it where elements overlap, so it is tried once.
    """
    sample = np.arange(4096, dtype=np.uint16)
    texts, lengths = _pair_texts(",")
    words, sizes = texts.take(sample * 31), lengths.take(sample * 31)
    return bytes(_overlaid(words, sizes)) == words.tobytes().translate(None, b"\0")


def _parts(array: Array) -> Iterator[tuple[Array, int]]:
    """The array's rows, some at a time, and the number of the first of them."""
    rows = array.reshape(-1, array.shape[-1])
    step = max(1, _PIECE_VALUES // rows.shape[1])
    for first in range(0, len(rows), step):
        yield rows[first : first + step], first


def _put_gaps(column: Array, gaps: Array, array: Array, first: int) -> None:
    """Fill a layout's last column: what follows each row, as one of `gaps`, which stand for `_GAPS`."""
    column[:] = gaps[0]
    if array.ndim == 3:
        group = array.shape[1]
        column[(group - 1 - first) % group :: group] = gaps[1]
    if first + len(column) == array.size // array.shape[-1]:
        column[-1] = gaps[1 + array.ndim]


def _words(texts: Sequence[str], word: type[np.unsignedinteger[Any]]) -> Array:
    width = np.dtype(word).itemsize
    padded = "".join(text.ljust(width, "\0") for text in texts)
    return np.frombuffer(padded.encode(), dtype=np.dtype(word).newbyteorder("<"))


@cache
def _number_texts(separator: str) -> Array:
    return _words([f"{number}{separator}" for number in range(_TABLE_SIZE)], np.uint32)


@cache
def _pair_texts(separator: str) -> tuple[Array, Array]:
    """For two bytes, the first in the low half: their text with a separator behind each, and its length."""
    numbers = _words([str(number) for number in range(256)], np.uint64)
    digits = np.array([len(str(number)) for number in range(256)], dtype=np.uint64)
    low, high = np.arange(1 << 16) & 255, np.arange(1 << 16) >> 8
    first = numbers[low] | np.uint64(ord(",")) << 8 * digits[low]
    second = numbers[high] | np.uint64(ord(separator)) << 8 * digits[high]
    texts = first | second << 8 * (digits[low] + np.uint64(1))
    return texts, (digits[low] + digits[high] + 2).astype(np.uint8)
