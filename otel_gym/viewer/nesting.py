"""JSON that is nested deeper than it can be written or compared: its depths become text. A line may be nested a thousand levels deep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import orjson

LEVELS: Final = 100
"""Levels that stay as they are; orjson writes 254."""
_ROOM: Final = 20
"""Levels that a page puts around a value at most."""


def readable(value: Any) -> Any:
    """`value` itself, or `shallow` of it where it is nested too deep to be written again as part of a page."""
    wrapped = value
    for _ in range(_ROOM):
        wrapped = [wrapped]
    try:
        orjson.dumps(wrapped)
    except (TypeError, ValueError):
        return shallow(value)
    return value


def shallow(value: Any, levels: int = LEVELS) -> Any:
    """`value` with what lies below so many levels as its JSON text."""
    if isinstance(value, dict):
        if levels == 0:
            return "".join(_written(value))
        return {key: shallow(inner, levels - 1) for key, inner in value.items()}
    if isinstance(value, list):
        if levels == 0:
            return "".join(_written(value))
        return [shallow(inner, levels - 1) for inner in value]
    return value


def _written(value: Any) -> Iterator[str]:
    """JSON in pieces, without recursion."""
    ends: list[str] = []
    inside: list[Iterator[tuple[str, Any]]] = []
    label, current = "", value
    while True:
        if isinstance(current, dict):
            yield f"{label}{{"
            inside.append((f"{json.dumps(key)}:", inner) for key, inner in current.items())
            ends.append("}")
            first = True
        elif isinstance(current, list):
            yield f"{label}["
            inside.append(("", inner) for inner in current)
            ends.append("]")
            first = True
        else:
            yield label + json.dumps(current)
            first = False
        while inside and (following := next(inside[-1], None)) is None:
            inside.pop()
            yield ends.pop()
            first = False
        if not inside:
            return
        assert following is not None
        label, current = following
        label = label if first else f",{label}"
