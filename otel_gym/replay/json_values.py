"""JSON values in and out, exactly: any integer, any finite float, lone surrogates, key order.

The standard parser is used where orjson would change a value: it keeps integers beyond 64 bits and
surrogate escapes. Heads are small, so its speed does not matter; arrays never come through here.

Nesting is bounded, because otherwise the depth of the caller's stack would decide whether a text that was
written can be read again.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

import numpy as np

JsonValue = Any
"""A value of `json.loads`: dict, list, str, int, float, bool or null."""

MAX_NESTING: Final = 200
"""How many lists and objects may lie inside each other."""

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def load_json(text: bytes | str) -> JsonValue:
    """The value of a JSON text; ValueError for anything that is not JSON (RFC 8259), NaN included,
    or is nested more than `MAX_NESTING` deep.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    check_nesting(text.encode("utf-8", "surrogatepass"))
    return json.loads(text, parse_constant=_refuse_constant)


def dump_json(value: JsonValue) -> bytes:
    """The compact JSON text of a value; ValueError where there is none (NaN, bytes, cycles) or `load_json`
    would refuse it.
    """
    try:
        text = _dumped(value)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a JSON value: {error}") from error
    check_nesting(text)
    return text


def _dumped(value: JsonValue) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate exists in JSON only as an escape
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def check_nesting(text: bytes) -> None:
    """ValueError where a JSON text is nested more than `MAX_NESTING` deep."""
    if text.count(b"[") + text.count(b"{") <= MAX_NESTING:
        return
    outside = np.frombuffer(_STRING.sub(b"", text), dtype=np.uint8)
    opening = (outside == ord("[")) | (outside == ord("{"))
    closing = (outside == ord("]")) | (outside == ord("}"))
    depths = np.cumsum(opening.astype(np.int8) - closing.astype(np.int8), dtype=np.int64)
    if depths.max(initial=0) > MAX_NESTING:
        raise ValueError(f"nested more than {MAX_NESTING} deep")
