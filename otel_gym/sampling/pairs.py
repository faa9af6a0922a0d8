"""Sampling parameters as typed on a command line: `temperature=1.0`, `stop=["\\n"]`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from otel_gym.errors import UsageProblem


def pairs(flag: str, typed: Iterable[str]) -> dict[str, Any]:
    """`NAME=VALUE` texts as a mapping; a value is JSON, or else text. Raises `UsageProblem`."""
    found: dict[str, Any] = {}
    for text in typed:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or not name:
            raise UsageProblem(f"{flag} {text}: must be NAME=VALUE, such as temperature=1.0")
        try:
            found[name] = orjson.loads(value)
        except ValueError:
            found[name] = value
    return found
