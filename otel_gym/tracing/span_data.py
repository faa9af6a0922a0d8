"""A span as plain data: what `spans` computes, `encode` writes and `verify` compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

AttributeValue: TypeAlias = str | bool | int | float | Sequence[str]
"""What a span attribute can hold here."""

INTERNAL: Final = 1
CLIENT: Final = 3
"""Span kinds by their OTLP number."""

UNSET: Final = 0
ERROR: Final = 2
"""Status codes by their OTLP number; OK is for application developers and never set here."""


class Status(NamedTuple):
    """Status of a span: its OTLP code, and a description that is empty unless the code is ERROR."""

    code: int = UNSET
    description: str = ""


NO_STATUS: Final = Status()
"""Status of a span that went well."""


@dataclass(slots=True)
class Link:
    """A link to another span; ids as hex digits."""

    trace_id: str
    span_id: str
    trace_state: str = ""
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(slots=True)
class Event:
    """A span event; its attributes may be structured (mappings and lists)."""

    name: str
    time_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SpanData:
    """One span. Ids are lower-case hex digits, times are nanoseconds since the epoch (UTC)."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_span_id: str
    """Empty for a root."""
    start_ns: int
    end_ns: int
    attributes: dict[str, AttributeValue]
    status: Status = NO_STATUS
    links: list[Link] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    parent_is_remote: bool = False
    """Whether the parent came with the request rather than from the run's own ids."""
    trace_state: str = ""
    """W3C tracestate of the trace that the span continues."""
