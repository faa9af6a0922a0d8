"""The complete Responses output items of a turn: a small JSON head, and columns for its arrays.

In the head, the text of a list that became a column is replaced by a string: the mark and the column's
number. The mark holds a digest of the head itself, so no model can write one into its answer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any, Final

from otel_gym.replay.column_making import (
    column_from_list,
    column_from_string,
    column_from_text,
)
from otel_gym.replay.columns import ARRAY_FIELDS, Column, Piece
from otel_gym.replay.errors import CaptureError
from otel_gym.replay.json_values import JsonValue, dump_json, load_json

_KEYS: Final = tuple(b'"%s"' % field.encode() for field in reversed(ARRAY_FIELDS))  # largest first
_STRING_FIELD: Final = "routed_experts"  # the only one with a string form
_MARK: Final = re.compile(r"column:[0-9a-f]{32}:")
_STRING_KEY: Final = b'"routed_experts"'
_BEFORE_VALUE: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*(?=[\[\"])")

DESCRIPTION_FIELDS: Final = ("id", "model", "status", "incomplete_details", "usage")
"""What a turn keeps of a response beside its items."""


class NativeItems:
    """Immutable. `head` is the JSON text of the item list with `mark`ed strings for `columns`."""

    __slots__ = ("columns", "head", "mark")

    def __init__(self, head: bytes, mark: str, columns: tuple[Column, ...]) -> None:
        self.head = head
        self.mark = mark
        self.columns = columns

    @classmethod
    def stored(cls, head: bytes, mark: str, columns: tuple[Column, ...]) -> NativeItems:
        """As they were written; ValueError where mark, head and columns don't belong together."""
        if columns and not _MARK.fullmatch(mark):
            raise ValueError("the mark of a head is malformed")
        numbers = [int(match[1]) for match in _marked(mark).finditer(head)] if columns else []
        if sorted(numbers) != list(range(len(columns))):
            raise ValueError("a head and its columns do not belong together")
        return cls(head, mark if columns else "", columns)

    @classmethod
    def from_values(cls, items: list[Any]) -> NativeItems:
        """From plain items; the given lists are read, never kept."""
        return cls._from_skeleton([_with_columns(item) for item in items])

    @classmethod
    def _from_skeleton(cls, items: list[Any]) -> NativeItems:
        """From items in which lists of the array fields may be `Column` objects."""
        found: list[tuple[dict[str, Any], str, Column]] = []
        for item in items:
            if isinstance(item, dict):
                for field in ARRAY_FIELDS:
                    value = item.get(field)
                    if isinstance(value, Column):
                        found.append((item, field, value))
                        item[field] = None
        plain = dump_json(items)
        if not found:
            return cls(plain, "", ())
        mark = _mark(plain)
        for number, (item, field, _) in enumerate(found):
            item[field] = f"{mark}{number}"
        return cls(dump_json(items), mark, tuple(column for _, _, column in found))

    def skeleton(self) -> list[Any]:
        """The items with a marked string where a column was taken out; a new list each time."""
        items: list[Any] = load_json(self.head)
        return items

    def column_of(self, value: JsonValue) -> Column | None:
        """The column that a value of the skeleton stands for, or null for a value of its own."""
        if self.mark and isinstance(value, str) and value.startswith(self.mark):
            return self.columns[int(value[len(self.mark) :])]
        return None

    def values(self) -> list[Any]:
        """The items as plain JSON values, exactly as captured; new objects each time."""
        items = self.skeleton()
        if self.columns:
            for item in items:
                if isinstance(item, dict):
                    for field in ARRAY_FIELDS:
                        column = self.column_of(item.get(field))
                        if column is not None:
                            item[field] = column.to_list()
        return items

    def to_json(self) -> bytes:
        """The JSON text of the items, without making their lists."""
        return b"".join(self.json_pieces())

    def json_pieces(self) -> Iterator[Piece]:
        """The same text in pieces, one column at a time."""
        if not self.columns:
            yield self.head
            return
        start = 0
        for match in _marked(self.mark).finditer(self.head):
            yield self.head[start : match.start()]
            yield from self.columns[int(match[1])].json_pieces()
            start = match.end()
        yield self.head[start:]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NativeItems):
            return NotImplemented
        return self.head == other.head and self.columns == other.columns

    def __hash__(self) -> int:
        return hash(self.head)


def _marked(mark: str) -> re.Pattern[bytes]:
    """Finds the strings in a head that stand for columns."""
    return re.compile(rb'"' + re.escape(mark.encode()) + rb'([0-9]{1,9})"')


def _mark(text: bytes) -> str:
    return f"column:{hashlib.sha256(text).hexdigest()[:32]}:"


def _with_columns(item: JsonValue) -> JsonValue:
    if not isinstance(item, dict) or not any(field in item for field in ARRAY_FIELDS):
        return item
    copy = dict(item)
    for field in ARRAY_FIELDS:
        value = copy.get(field)
        if isinstance(value, list):
            column = column_from_list(value)
        elif isinstance(value, str) and field == _STRING_FIELD and value.isascii():
            column = column_from_string(value.encode("ascii"))
        else:
            continue
        if column is not None:
            copy[field] = column
    return copy


def read_response(text: bytes) -> tuple[dict[str, Any], NativeItems]:
    """A Responses API answer from its bytes: its `DESCRIPTION_FIELDS`, and its items.

    The arrays go from the text into columns; no list of them is made. Raises `CaptureError`.
    """
    spans = list(_array_spans(text))
    pieces: list[bytes] = []
    start = 0
    for span_start, span_end, _ in spans:
        pieces += (text[start:span_start], b"null")
        start = span_end
    pieces.append(text[start:])
    mark = _mark(b"".join(pieces))
    for number in range(len(spans)):
        pieces[2 * number + 1] = f'"{mark}{number}"'.encode()
    try:
        response = load_json(b"".join(pieces))
    except ValueError as error:
        raise CaptureError(f"response: not JSON: {error}") from error
    items = output_items(response)
    columns = {f"{mark}{number}": span for number, span in enumerate(spans)}
    for item in items:
        if isinstance(item, dict):
            for field in ARRAY_FIELDS:
                value = item.get(field)
                if isinstance(value, str) and value in columns:
                    item[field] = columns[value][2]
    rest = {key: response[key] for key in DESCRIPTION_FIELDS if key in response}
    try:
        # Again from their values, so that equal items are kept alike however their text was written.
        native = NativeItems.from_values(items)
        if mark.encode() in native.head:  # an array field somewhere inside an item stays JSON
            restored = _unmarked(native.values(), columns, text)
            native = NativeItems.from_values(restored)
        if spans:
            rest = _unmarked(rest, columns, text)
    except ValueError as error:
        raise CaptureError(f"response.output: {error}") from error
    return rest, native


def output_items(response: JsonValue) -> list[Any]:
    """The `output` of a response; `CaptureError` where it is not a list of objects."""
    if not isinstance(response, dict):
        raise CaptureError(f"response: want an object, not {type(response).__name__}")
    items = response.get("output")
    if not isinstance(items, list):
        raise CaptureError(f"response.output: want a list, not {type(items).__name__}")
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise CaptureError(
                f"response.output[{index}]: want an object, not {type(item).__name__}"
            )
    return items


def _unmarked(value: JsonValue, columns: dict[str, tuple[int, int, Column]], text: bytes) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(inner, columns, text) for key, inner in value.items()}
    if isinstance(value, list):
        return [_unmarked(inner, columns, text) for inner in value]
    if isinstance(value, str) and value in columns:
        start, end, _ = columns[value]
        return load_json(text[start:end])
    return value


def _array_spans(text: bytes) -> Iterator[tuple[int, int, Column]]:
    """Where in a JSON text the arrays are that become columns, in order: start, end, column.

    A key is found by its text. In valid JSON the bytes `"name"` before a colon are always a key (quotes
    inside strings are escaped); in invalid JSON the head does not parse, whatever was found.
    """
    spans: list[tuple[int, int, Column]] = []
    for key in _KEYS:
        taken = [*sorted(spans, key=lambda span: span[0]), (len(text), len(text), None)]
        start = 0
        for span_start, span_end, _ in taken:
            spans.extend(_spans_of(text, key, start, span_start))
            start = span_end
    return iter(sorted(spans, key=lambda span: span[0]))


def _spans_of(text: bytes, key: bytes, start: int, end: int) -> Iterator[tuple[int, int, Column]]:
    while (found := text.find(key, start, end)) >= 0:
        start = found + len(key)
        colon = _BEFORE_VALUE.match(text, start)
        if colon is None:
            continue
        begin = colon.end()
        if text[begin] == ord('"'):
            if key != _STRING_KEY:
                continue
            stop = text.find(b'"', begin + 1) + 1  # a string with escapes makes no column
            if not stop:
                return
            column = column_from_string(text[begin + 1 : stop - 1])
        else:
            # A list of numbers ends before the next quote or closing brace, whichever comes first.
            limit = text.find(b"}", begin)
            limit = len(text) if limit < 0 else limit
            quote = text.find(b'"', begin, limit)
            stop = text.rfind(b"]", begin, limit if quote < 0 else quote) + 1
            column = column_from_text(text, begin, stop)
        if column is not None:
            yield begin, stop, column
            start = stop
