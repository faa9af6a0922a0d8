"""Inbound W3C trace context: https://www.w3.org/TR/trace-context/."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_VERSION_00: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)
_LATER: Final = re.compile(
    r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII
)
_MAX_LENGTH: Final = 512


@dataclass(frozen=True, slots=True)
class TraceParent:
    """A caller's span."""

    trace_id: str
    span_id: str
    flags: int


def parse_traceparent(value: str) -> TraceParent | None:
    """The caller's span, or null for a header that the specification says to ignore."""
    value = value.strip()
    if len(value) > _MAX_LENGTH:
        return None
    match = _VERSION_00.fullmatch(value)
    if match is None:
        if value.startswith(("00-", "ff-")):
            return None
        match = _LATER.fullmatch(value)
        if match is None:
            return None
    trace_id, span_id, flags = match[1], match[2], match[3]
    if trace_id == "0" * 32 or span_id == "0" * 16:
        return None
    return TraceParent(trace_id, span_id, int(flags, 16))
