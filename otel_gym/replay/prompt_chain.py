"""Prompts stored as what they add to the bundle before them.

An agent's prompt usually starts with the prompt and the answer of its last call. Stored in full, the ids
of T turns take O(T^2); stored as suffixes they take O(T). The base is implied: it is always the last item
with token metadata before this one in the history, in the same turn or an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from otel_gym.replay.column_making import stored_column
from otel_gym.replay.columns import (
    ARRAY_FIELDS,
    Array,
    Column,
    SuffixColumn,
    digest_of,
)
from otel_gym.replay.turn import Turn

_MIN_SHARED: Final = 16  # a shorter prefix is not worth its description
_PROMPT, _GENERATION = ARRAY_FIELDS[:2]


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column as it is written: `data` is its array, or its suffix where `shared` is not 0."""

    item: int
    field: str
    column: Column
    data: Array
    shared: int
    stored_digest: str

    def description(self) -> dict[str, Any]:
        """Everything but the data, as a JSON object."""
        described: dict[str, Any] = {
            "item": self.item,
            "field": self.field,
            "dtype": self.column.dtype,
            "shape": list(self.column.shape),
            "digest": self.column.digest,
        }
        if self.shared:
            described |= {"shared": self.shared, "stored_digest": self.stored_digest}
        return described


class PromptChain:
    """The last bundle before the next item, while a history is written or read in order."""

    def __init__(self) -> None:
        self._last: tuple[Column, Column | None] | None = None

    @classmethod
    def after(cls, turns: Sequence[Turn]) -> PromptChain:
        """The state after some turns have been written."""
        chain = cls()
        for turn in reversed(turns):
            for index in reversed(range(turn.item_count)):
                chain._follow(turn.columns_of(index))
                if chain._last is not None:
                    return chain
        return chain

    def stored(self, turn: Turn) -> Iterator[StoredColumn]:
        """The columns of a turn as they are written after what came before."""
        native = turn.native_items
        if native is None or not native.columns:
            return
        for index in range(turn.item_count):
            columns = turn.columns_of(index)
            for field, column in columns.items():
                data, shared = (None, 0)
                if field == _PROMPT:
                    data, shared = self._suffix(column)
                if data is None or not shared:
                    yield StoredColumn(index, field, column, column.array, 0, column.digest)
                else:
                    yield StoredColumn(index, field, column, data, shared, digest_of(data))
            self._follow(columns)

    def read(self, described: list[dict[str, Any]], data: list[Array]) -> tuple[Column, ...]:
        """The columns of a turn from their descriptions and stored data; ValueError where they disagree."""
        columns: list[Column] = []
        of_item: dict[str, Column] = {}
        item = -1
        for description, array in zip(described, data, strict=True):
            if description["item"] != item:
                self._follow(of_item)
                of_item, item = {}, description["item"]
            column = self._column(description, array)
            of_item[description["field"]] = column
            columns.append(column)
        self._follow(of_item)
        return tuple(columns)

    def _column(self, description: dict[str, Any], array: Array) -> Column:
        shared = description.get("shared", 0)
        if not shared:
            return stored_column(
                description["dtype"], description["shape"], array, description["digest"]
            )
        if self._last is None:
            raise ValueError("a prompt extends a bundle that is not there")
        prompt, generation = self._last
        base_length = prompt.shape[0] + (generation.shape[0] if generation is not None else 0)
        if shared > base_length or description["shape"] != [shared + len(array)]:
            raise ValueError("a prompt extends a bundle that is too short")
        if not isinstance(description["digest"], str):
            raise ValueError("the digest of a prompt is no text")
        return SuffixColumn(self._last, shared, array, description["dtype"], description["digest"])

    def _follow(self, columns: dict[str, Column]) -> None:
        prompt, generation = columns.get(_PROMPT), columns.get(_GENERATION)
        if prompt is None or not _is_ids(prompt):
            return
        usable = generation if generation is not None and _is_ids(generation) else None
        self._last = (prompt, usable)

    def _suffix(self, column: Column) -> tuple[Array | None, int]:
        """What a prompt adds to the last bundle, and how many ids it shares with it."""
        if self._last is None or not _is_ids(column):
            return None, 0
        prompt, generation = self._last
        if (
            isinstance(column, SuffixColumn)
            and column.base[0] is prompt
            and column.base[1] is generation
        ):
            return column.suffix, column.shared
        shared = _common(column.array, prompt.array)
        if shared == len(prompt.array) and generation is not None:
            shared += _common(column.array[shared:], generation.array)
        return (column.array[shared:], shared) if shared >= _MIN_SHARED else (None, 0)


def _is_ids(column: Column) -> bool:
    return len(column.shape) == 1 and column.dtype[:2] in ("<i", "<u")


def _common(left: Array, right: Array) -> int:
    """How many first values are equal."""
    length = min(len(left), len(right))
    if not length:
        return 0
    differ = left[:length] != right[:length]
    first = int(np.argmax(differ))
    return first if differ[first] else length
