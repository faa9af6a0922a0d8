"""Reading values out of JSON that nobody vouches for: each function gives the value in its type, or null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

MAX_STRING_LENGTH: Final = 512
"""Longest string that goes into an ordinary attribute, in characters; a longer one is cut and ends in an ellipsis."""
MAX_ITEMS: Final = 64
"""Most strings in a list attribute."""

_INT64: Final = 2**63


def text(value: object) -> str | None:
    """A non-empty string, cut at `MAX_STRING_LENGTH`."""
    if type(value) is not str or not value:
        return None
    return value if len(value) <= MAX_STRING_LENGTH else value[: MAX_STRING_LENGTH - 1] + "…"


def whole(value: object) -> int | None:
    """An integer that OTLP can hold; a bool is none."""
    return value if type(value) is int and -_INT64 <= value < _INT64 else None


def count(value: object) -> int | None:
    """A whole number that is not negative."""
    return value if type(value) is int and 0 <= value < _INT64 else None


def number(value: object) -> float | None:
    """A number as a float."""
    if type(value) is float:
        return value
    return float(value) if type(value) is int and abs(value) < _INT64 else None


def mapping(value: object) -> Mapping[str, Any]:
    """A JSON object, empty for anything else."""
    return value if type(value) is dict else {}


def sequence(value: object) -> list[Any]:
    """A JSON array, empty for anything else."""
    return value if type(value) is list else []


def strings(values: Iterable[object]) -> list[str]:
    """The strings among `values`, each cut, at most `MAX_ITEMS`."""
    found: list[str] = []
    for value in values:
        cut = text(value)
        if cut is not None:
            found.append(cut)
            if len(found) == MAX_ITEMS:
                break
    return found
