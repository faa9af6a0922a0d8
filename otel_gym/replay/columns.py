"""Typed columns: the arrays of a turn, outside its JSON.

A column holds the values of one list field in the smallest type that holds them all, so that the list can
be made again exactly: integers as u1..i8, floats as float64 bit for bit (-0.0 and subnormals included).
A list that mixes kinds, is ragged or too wide is kept as its JSON text: beside the head where it is long, in
it where it is short or empty. `column_making` decides.
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

from otel_gym.dialects.jsontext import loads_noting
from otel_gym.replay.errors import ReplayError
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

TEXT: Final = "text"
JSON: Final = "json"

_MANY: Final = 1 << 12  # values from which on a list is worth a pause of the collector
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
        """The value that was captured: a list but for a `TextColumn`. `ReplayError` where it is damaged."""
        values: list[Any]
        if self.array.size < _MANY:
            values = self.array.tolist()
        else:
            with collector_paused():
                values = self.array.tolist()
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
        return TEXT

    def to_list(self) -> str:
        return self.array.tobytes().decode("ascii")

    def json_pieces(self) -> tuple[Piece, ...]:
        return (b'"', self.array.data, b'"')


class JsonColumn(Column):
    """A long list that no typed array can hold (ragged, of mixed kinds); `array` is its compact JSON text."""

    __slots__ = ()

    @property
    def dtype(self) -> str:
        return JSON

    def to_list(self) -> list[Any]:
        try:
            with collector_paused():
                values, _ = loads_noting(self.array.tobytes())
        except ValueError as error:
            raise ReplayError(f"a column of JSON text cannot be read: {error}") from error
        if not isinstance(values, list):
            raise ReplayError("a column of JSON text is no list")
        return values

    def json_pieces(self) -> tuple[Piece, ...]:
        return (self.array.data,)


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
    not visit each of them; that alone takes as long as making them. What was young before is collected
    first, so that no garbage grows old with them.
    """
    if not gc.isenabled():
        yield
        return
    gc.collect(1)
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
