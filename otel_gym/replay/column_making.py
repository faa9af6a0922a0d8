"""Columns made: from lists, from JSON text without a list, and from what was written down."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import orjson

from otel_gym.dialects.jsontext import loads_noting
from otel_gym.replay.columns import (
    JSON,
    TEXT,
    Array,
    Column,
    JsonColumn,
    TextColumn,
    collector_paused,
)
from otel_gym.replay.int_text import parse_int_array
from otel_gym.replay.json_values import check_nesting, dump_json, load_json

_UNSIGNED: Final = ("<u1", "<u2", "<u4", "<i8")
_SIGNED: Final = ("<i1", "<i2", "<i4", "<i8")
_FLOAT: Final = "<f8"
DTYPES: Final = frozenset({*_UNSIGNED, *_SIGNED, _FLOAT, TEXT, JSON})
"""Every type a column can have: numpy's notation, little endian; `text` is ASCII, `json` UTF-8, both in bytes."""

_SHORTEST_TEXT_BYTES: Final = 256
_SHORTEST_JSON_BYTES: Final = 1024
_FLOAT_PIECE_BYTES: Final = 1 << 16

_KINDS: Final[dict[str, type[Column]]] = {TEXT: TextColumn, JSON: JsonColumn}


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
    piece = text[start:end]
    floats = _floats_from_text(piece)
    if floats is not None:
        return Column(floats)
    if len(piece) < _SHORTEST_JSON_BYTES:
        return None
    with collector_paused():
        try:
            values, _ = loads_noting(piece)
        except ValueError:
            return None
        return _json_column(values) if isinstance(values, list) else None


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
        return _json_column(values)
    integers = parse_int_array(text)
    return _json_column(values, text) if integers is None else Column(narrowed(integers))


def _json_column(values: list[Any], text: bytes | None = None) -> Column | None:
    """The column of a long list as its JSON text; null where it is short or has no exact text.

    `text` is what orjson makes of it, which is not exact everywhere: it writes NaN as null.
    """
    try:
        if text is None:
            text = orjson.dumps(values)
        with collector_paused():
            if orjson.loads(text) != values:
                return None
        check_nesting(text)
    except TypeError:
        try:
            text = dump_json(values)
        except ValueError:
            return None
    except ValueError:
        return None
    if len(text) < _SHORTEST_JSON_BYTES:
        return None
    return JsonColumn(np.frombuffer(text, dtype=np.uint8))


def column_from_string(text: bytes) -> Column | None:
    """The column of a string that stands for an array; null where it is short or not as JSON writes it."""
    if len(text) < _SHORTEST_TEXT_BYTES or b'"' in text or b"\\" in text:
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
    if dtype == TEXT and not _is_plain(data):
        raise ValueError("a text column holds more than plain text")
    return _KINDS.get(dtype, Column)(data.reshape(shape), digest)


def array_of(dtype: str, data: bytes | memoryview) -> Array:
    """Written bytes as an array, not copied; ValueError for a type that no column has."""
    if dtype not in DTYPES:
        raise ValueError(f"no such column type: {dtype!r}")
    array: Array = np.frombuffer(data, dtype=np.uint8 if dtype in _KINDS else dtype)
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
