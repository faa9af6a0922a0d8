"""Trace context as it stands in HTTP headers: https://www.w3.org/TR/trace-context/."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_TRACEPARENT_LENGTH: Final = 512
_TRACEPARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?",
    re.ASCII | re.DOTALL,
)
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SPAN_ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)


class TraceParent(NamedTuple):
    """A valid traceparent header."""

    trace_id: str
    span_id: str
    flags: int


def parse_traceparent(header: object) -> TraceParent | None:
    """The parts of a traceparent header, or null where it is not valid.

    As the specification says: version ff, all-zero ids and extra fields of version 00 are refused; a later version may have more fields.
    """
    if not isinstance(header, str) or len(header) > MAX_TRACEPARENT_LENGTH:
        return None
    match = _TRACEPARENT.fullmatch(header.strip(" \t"))
    if match is None or match["version"] == "ff":
        return None
    if match["rest"] is not None and match["version"] == "00":
        return None
    if not is_trace_id(match["trace"]) or not is_span_id(match["span"]):
        return None
    return TraceParent(match["trace"], match["span"], int(match["flags"], 16))


def format_traceparent(trace_id: str, span_id: str) -> str:
    """The traceparent header of a sampled span."""
    return f"00-{trace_id}-{span_id}-01"


def is_trace_id(value: object) -> bool:
    """Whether `value` is a valid trace id: 32 lower-case hex digits, not all zero."""
    return (
        isinstance(value, str) and _TRACE_ID.fullmatch(value) is not None and value.strip("0") != ""
    )


def is_span_id(value: object) -> bool:
    """Whether `value` is a valid span id: 16 lower-case hex digits, not all zero."""
    return (
        isinstance(value, str) and _SPAN_ID.fullmatch(value) is not None and value.strip("0") != ""
    )
