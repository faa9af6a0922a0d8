"""JSON as it arrives: read so that nothing in it is lost, and said where that was not possible."""

from __future__ import annotations

import base64
import json
from typing import Any

import orjson

MAX_DEPTH = 200
"""Nesting of one event that is still merged; deeper ones are kept as text."""
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_LONG_INTEGER = b"0" * 19
_SAMPLED_BYTES = 4096
"""Length from which on a body is first looked through at every sixth byte."""


def loads(data: bytes) -> Any:
    """Any JSON value; also what the standard library's reader takes beyond the standard (NaN, lone surrogates).

    For pieces whose text is kept elsewhere: integers beyond 64 bits may become floats.
    Raises ValueError where the bytes are no JSON, or are nested deeper than `MAX_DEPTH`.
    """
    try:
        value = orjson.loads(data)
    except ValueError:
        value = _loads_leniently(data)
    if len(data) > 2 * MAX_DEPTH and _too_deep(data, value):
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return value


def loads_replacing(data: bytes) -> Any:
    """The JSON value of bytes that are not UTF-8, with U+FFFD for what is none, as event streams are to be decoded.

    Raises ValueError where the bytes are UTF-8, or are no JSON even so.
    """
    readable = data.decode("utf-8", "replace").encode()
    if readable == data:
        raise ValueError("no JSON")
    return loads(readable)


def _too_deep(data: bytes, value: Any) -> bool:
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    try:
        orjson.dumps(value)
        return False  # orjson's own limit is 254 levels, far below what recursion here can bear
    except (TypeError, ValueError, RecursionError):
        level = [value]
        for _ in range(MAX_DEPTH):
            level = [
                inner
                for one in level
                if isinstance(one, dict | list)
                for inner in (one.values() if isinstance(one, dict) else one)
            ]
            if not level:
                return False
        return True


def loads_noting(data: bytes) -> tuple[Any, bool]:
    """The value with all digits of its integers, and whether JSON writers can write it again without loss.

    Raises ValueError where the bytes are no JSON.
    """
    if not _may_hold_long_integer(data):
        try:
            return orjson.loads(data), True
        except ValueError:
            pass
    value = _loads_leniently(data)
    try:
        return value, orjson.loads(orjson.dumps(value)) == value
    except (TypeError, ValueError, RecursionError):
        return value, False


def _may_hold_long_integer(data: bytes) -> bool:
    """Whether 19 digits stand beside each other somewhere, which is how an integer beyond 64 bits must look."""
    # Any 19 bytes hold three of every sixth byte, one after the other: nearly all text is done with a sixth of the work.
    if len(data) >= _SAMPLED_BYTES and b"000" not in data[::6].translate(_DIGITS_ALIKE):
        return False
    return _LONG_INTEGER in data.translate(_DIGITS_ALIKE)


def _loads_leniently(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None


def text_or_base64(data: bytes) -> tuple[str | None, str | None]:
    """(text, None) for UTF-8, else (None, base64): exactly one of the two holds all the bytes."""
    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode("ascii")
