"""JSON as it arrives: read so that nothing in it is lost, and said where that was not possible."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

LONG_INTEGER = re.compile(rb"[0-9]{19}")


def loads(data: bytes) -> Any:
    """Any JSON value; also what the standard library's reader takes beyond the standard (NaN, lone
    surrogates). Integers keep all their digits.

    Raises ValueError where the bytes are no JSON.
    """
    return loads_noting(data)[0]


def loads_noting(data: bytes) -> tuple[Any, bool]:
    """The value, and whether standard JSON writers can write it again without loss.

    Raises ValueError where the bytes are no JSON.
    """
    if LONG_INTEGER.search(data) is None:
        try:
            return orjson.loads(data), True
        except ValueError:
            pass
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    try:
        return value, orjson.loads(orjson.dumps(value)) == value
    except (TypeError, ValueError, RecursionError):
        return value, False


def text_or_base64(data: bytes) -> tuple[str | None, str | None]:
    """(text, None) for UTF-8, else (None, base64): exactly one of the two holds all the bytes."""
    import base64

    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode("ascii")
