"""Attribute values as the text that Jaeger compares and shows: https://pkg.go.dev/go.opentelemetry.io/collector/pdata/pcommon#Value.AsString."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson


def as_text(value: Any) -> str:
    """`value` as text: lists and mappings as JSON in Go's way."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, (Mapping, list, tuple)):
        return _json(value)
    return "" if value is None else str(value)


def _float(value: float) -> str:
    """As encoding/json writes it: no exponent between 1e-6 and 1e21, no trailing zero."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[str(value)]
    if value == 0:
        return "-0" if str(value).startswith("-") else "0"
    if 1e-6 <= abs(value) < 1e21:
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}"


def _json(value: Any) -> str:
    """Sorted keys, and the characters escaped that Go escapes for HTML."""
    try:
        text = orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError):
        return str(value)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value
