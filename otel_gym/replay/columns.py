"""Typed columns: the arrays of a turn, outside its JSON.

A column holds the values of one list field in the smallest type that holds them all, so that the list can
be made again exactly: integers as u1..i8, floats as float64 bit for bit (-0.0 and subnormals included).
A list that mixes kinds, is ragged, empty or too wide makes no column and stays JSON.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from otel_gym.replay.errors import ReplayError
from otel_gym.replay.int_text import parse_int_array
from otel_gym.replay.json_values import load_json
from otel_gym.replay.wire_texts import WIRE_TEXTS

ARRAY_FIELDS: Final = (
    "prompt_token_ids",
    "generation_token_ids",
    "generation_log_probs",
    "routed_experts",
)
"""The list fields of an output item that become columns, in the order of the reference."""

Array = npt.NDArray[Any]

Piece: TypeAlias = bytes | memoryview
"""A part of a JSON text, to be joined with the others."""

_UNSIGNED: Final = ("<u1", "<u2", "<u4", "<i8")
_SIGNED: Final = ("<i1", "<i2", "<i4", "<i8")
_FLOAT: Final = "<f8"
_TEXT: Final = "text"
DTYPES: Final = frozenset({*_UNSIGNED, *_SIGNED, _FLOAT, _TEXT})
"""Every type a column can have, in numpy's notation, little endian; `text` is ASCII in bytes."""

_SHORTEST_TEXT: Final = 256

_FLOAT_PIECE_BYTES: Final = 1 << 16
_SHORTEST_KEPT_BYTES: Final = 1 << 10  # below it, finding the kept text takes as long as making it


class Column:
    """One array, read-only. `array` is the values; `digest` the SHA-256 of their bytes, in hex."""

    __slots__ = ("_array", "_digest")

    def __init__(self, array: Array | None, digest: str | None = None) -> None:
        if array is not None:
            array.flags.writeable = False
        self._array = array
        self._digest = digest

    @property
    def array(self) -> Array:
        assert self._array is not None
        return self._array

    @property
    def digest(self) -> str:
        if self._digest is None:
            self._digest = digest_of(self.array)
        return self._digest

    @property
    def dtype(self) -> str:
        """The type in numpy's notation, little endian."""
        return wire_dtype(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def to_list(self) -> list[Any] | str:
        """The value that was captured: a list but for a `TextColumn`."""
        with collector_paused():
            values: list[Any] = self.array.tolist()
        return values

    def json_pieces(self) -> tuple[Piece, ...]:
        """The compact JSON text of the list in pieces, without making the list."""
        if self.array.nbytes < _SHORTEST_KEPT_BYTES:
            return (self._json(),)
        return (WIRE_TEXTS.get((self.digest, self.dtype, self.shape), self._json),)

    def _json(self) -> bytes:
        native = np.ascontiguousarray(self.array, dtype=self.array.dtype.newbyteorder("="))
        return orjson.dumps(native, option=orjson.OPT_SERIALIZE_NUMPY)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Column):
            return NotImplemented
        return (self.dtype, self.shape, self.digest) == (other.dtype, other.shape, other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)


class TextColumn(Column):
    """A long string that stands for an array (`nrlre1:...`), kept as it came; `array` is its bytes."""

    __slots__ = ()

    @property
    def dtype(self) -> str:
        return _TEXT

    def to_list(self) -> str:
        return self.array.tobytes().decode("ascii")

    def json_pieces(self) -> tuple[Piece, ...]:
        return (b'"', self.array.data, b'"')


class SuffixColumn(Column):
    """A prompt stored as what it adds to the bundle before it; resolved when its values are first wanted.

    `base` is that bundle's prompt column and, where there is one, its generation column; the prompt starts
    with the first `shared` ids of the two together.
    """

    __slots__ = ("_dtype", "_shape", "base", "shared", "suffix")

    def __init__(
        self,
        base: tuple[Column, Column | None],
        shared: int,
        suffix: Array,
        dtype: str,
        digest: str,
    ) -> None:
        super().__init__(None, digest)
        self.base = base
        self.shared = shared
        self.suffix = suffix
        self._dtype = dtype
        self._shape = (shared + len(suffix),)

    @property
    def dtype(self) -> str:
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def array(self) -> Array:
        if self._array is None:
            chain: list[SuffixColumn] = [self]
            while isinstance(prompt := chain[-1].base[0], SuffixColumn) and prompt._array is None:
                chain.append(prompt)
            for column in reversed(chain):  # a loop, because a rollout may have thousands of turns
                column._array = column._joined()
        return self._array  # type: ignore[return-value]  # set just above

    def _joined(self) -> Array:
        prompt, generation = self.base
        head = prompt.array[: self.shared]
        parts = [head]
        if len(head) < self.shared and generation is not None:
            parts.append(generation.array[: self.shared - len(head)])
        joined = np.concatenate(
            [*parts, self.suffix], dtype=np.dtype(self._dtype), casting="unsafe"
        )
        joined.flags.writeable = False
        if digest_of(joined) != self._digest:
            raise ReplayError("a prompt stored as what it adds is not the one that was captured")
        return joined


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cycle collection while many lists are made at once.

    They can't be part of a cycle yet, but their number alone would start full collections, which takes
    six times as long as making them. Afterwards they count as old, so that the next small collection does
    not visit each of them; that alone takes as long as making them.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else unfreezing would undo what the application has frozen
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def digest_of(array: Array) -> str:
    """SHA-256, in hex, of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def wire_dtype(array: Array) -> str:
    """An array's type as it is written down: always with its byte order."""
    return f"<{array.dtype.kind}{array.dtype.itemsize}"


def narrowed(values: Array) -> Array:
    """The same integers in the smallest type that holds them."""
    low, high = int(values.min()), int(values.max())
    for name in _SIGNED if low < 0 else _UNSIGNED:
        info = np.iinfo(name)
        if info.min <= low and high <= info.max:
            break
    return np.ascontiguousarray(values, dtype=name)


def column_from_text(text: bytes, start: int = 0, end: int | None = None) -> Column | None:
    """The column of the JSON array text in `text[start:end]`, or null where the list must stay JSON."""
    integers = parse_int_array(text, start, end)
    if integers is not None:
        return Column(narrowed(integers))
    floats = _floats_from_text(text[start:end])
    return None if floats is None else Column(floats)


def column_from_list(values: list[Any]) -> Column | None:
    """The column of a list, or null where the list must stay JSON."""
    if not values:
        return None
    if set(map(type, values)) == {float}:
        floats = np.array(values, dtype=_FLOAT)
        return Column(floats) if np.isfinite(floats).all() else None
    try:
        text = orjson.dumps(values)
    except TypeError:
        return None
    integers = parse_int_array(text)
    return None if integers is None else Column(narrowed(integers))


def column_from_string(text: bytes) -> Column | None:
    """The column of a string that stands for an array; null where it is short or not as JSON writes it."""
    if len(text) < _SHORTEST_TEXT or b'"' in text or b"\\" in text:
        return None
    characters = np.frombuffer(text, dtype=np.uint8)
    return TextColumn(characters) if _is_plain(characters) else None


def _is_plain(characters: Array) -> bool:
    """Whether they are all printable ASCII."""
    return bool(characters.size and characters.min() >= ord(" ") and characters.max() <= ord("~"))


def stored_column(dtype: str, shape: list[int], data: Array, digest: str) -> Column:
    """A column as it was written; ValueError where data, shape and type disagree."""
    if not isinstance(digest, str):
        raise ValueError("the digest of a column is no text")
    if dtype != _TEXT:
        return Column(data.reshape(shape), digest)
    if not _is_plain(data):
        raise ValueError("a text column holds more than plain text")
    return TextColumn(data.reshape(shape), digest)


def array_of(dtype: str, data: bytes | memoryview) -> Array:
    """Written bytes as an array, not copied; ValueError for a type that no column has."""
    if dtype not in DTYPES:
        raise ValueError(f"no such column type: {dtype!r}")
    array: Array = np.frombuffer(data, dtype=np.uint8 if dtype == _TEXT else dtype)
    return array


def _floats_from_text(text: bytes) -> Array | None:
    """A flat list of floats, read piece by piece so that no long list is made."""
    if not (text.startswith(b"[") and text.endswith(b"]")) or text[1:2] in (b"[", b"]"):
        return None
    pieces: list[Array] = []
    start, end = 1, len(text) - 1
    while start <= end:
        stop = end
        if end - start > _FLOAT_PIECE_BYTES:
            stop = text.find(b",", start + _FLOAT_PIECE_BYTES, end)
            stop = end if stop < 0 else stop
        try:
            # Not orjson, which reads an integer of more than 64 bits as a float.
            values = load_json(b"[" + text[start:stop] + b"]")
        except ValueError:
            return None
        if set(map(type, values)) != {float}:
            return None
        pieces.append(np.array(values, dtype=_FLOAT))
        start = stop + 1
    floats = np.concatenate(pieces)
    return floats if np.isfinite(floats).all() else None
