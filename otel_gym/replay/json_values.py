"""JSON values in and out, exactly: any integer, any finite float, lone surrogates, key order.

The standard parser is used where orjson would change a value: it keeps integers beyond 64 bits and
surrogate escapes. Heads are small, so its speed does not matter; arrays never come through here.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

JsonValue = Any
"""A value of `json.loads`: dict, list, str, int, float, bool or null."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def load_json(text: bytes | str) -> JsonValue:
    """The value of a JSON text; ValueError for anything that is not JSON (RFC 8259), NaN included."""
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def dump_json(value: JsonValue) -> bytes:
    """The compact JSON text of a value; ValueError where there is none (NaN, bytes, cycles)."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate exists in JSON only as an escape
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a JSON value: {error}") from error
