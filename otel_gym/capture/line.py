"""A raw record as one line of a capture file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

MAX_DEPTH = 200
"""Nesting that every JSON reader takes; what lies deeper is written as JSON text."""


def encode_line(raw: Mapping[str, Any]) -> bytes:
    """The record as compact JSON with a newline.

    Values that JSON does not know are written through `str`. Lone surrogates become U+FFFD, integers
    keep all their digits, numbers that are not finite become null, and nesting beyond 200 levels becomes
    JSON text: the line is always written and always readable.
    """
    try:
        return orjson.dumps(raw, default=_plain_or_str, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(_encodable(raw, 0), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace") + b"\n"


_SURROGATES = re.compile("[\ud800-\udfff]")
_OPTIONS = orjson.OPT_APPEND_NEWLINE


def _plain_or_str(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _encodable(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping | list | tuple):
        if depth >= MAX_DEPTH:
            return _as_text(value)
        if isinstance(value, Mapping):
            return {
                _encodable(str(key), depth): _encodable(item, depth + 1)
                for key, item in value.items()
            }
        return [_encodable(item, depth + 1) for item in value]
    return _encodable(_plain_or_str(value), depth)


def _as_text(value: object) -> str:
    try:
        text = json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):
        return f"<{type(value).__name__} nested too deep>"
    return text
