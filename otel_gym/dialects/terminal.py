"""When a stream has said that it is over.

| dialect | complete | incomplete | error |
|---|---|---|---|
| responses | `response.completed` | `response.incomplete`, `response.cancelled` | `response.failed`, `error` |
| chat, completions | `[DONE]` | | event `error`, or a payload with an `error` |
| messages | `message_stop` | | `error` |

The payload's `type` counts before the event line, so data-only streams end too. The first terminal wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.dialects.jsontext import loads, loads_replacing
from otel_gym.dialects.names import DialectName, Terminal
from otel_gym.dialects.sse import SSEvent

DONE = b"[DONE]"

KINDS: Mapping[DialectName, Mapping[str, Terminal]] = {
    "responses": {
        "response.completed": "complete",
        "response.incomplete": "incomplete",
        "response.cancelled": "incomplete",
        "response.failed": "error",
        "error": "error",
    },
    "messages": {"message_stop": "complete", "error": "error"},
    "chat": {"error": "error"},
    "completions": {"error": "error"},
}

ENDING = frozenset(kind for kinds in KINDS.values() for kind in kinds)
"""Every event type that ends a stream of some dialect."""

# Each terminal event holds at least one of its dialect's markers literally, or a JSON escape of an
# ASCII character, with which a sender could spell a marker differently.
MARKERS: Mapping[DialectName, tuple[bytes, ...]] = {
    "responses": (
        b"omplete",
        b"response.cancelled",
        b"response.failed",
        b"error",
    ),
    "messages": (b"message_stop", b"error"),
    "chat": (DONE, b"error"),
    "completions": (DONE, b"error"),
}


def is_done(dialect: DialectName, data: bytes) -> bool:
    """Whether the first data line of an event is the `[DONE]` of Chat Completions and Completions.

    The first line decides, so that the end is known when that line is complete.
    """
    return (
        DONE in data
        and dialect in ("chat", "completions")
        and data.split(b"\n", 1)[0].strip() == DONE
    )


def payload_terminal(
    dialect: DialectName, event: str, payload: Mapping[str, Any]
) -> Terminal | None:
    """The terminal kind that an event with a JSON object as data has, if any."""
    kinds = KINDS[dialect]
    kind = payload.get("type")
    if dialect in ("chat", "completions"):
        if payload.get("error") is not None or payload.get("object") == "error":
            return "error"
        return "error" if event == "error" or kind == "error" else None
    if isinstance(kind, str):
        return kinds.get(kind)
    if event:
        return kinds.get(event)
    return "error" if payload.get("error") is not None else None


def event_terminal(dialect: DialectName, event: SSEvent) -> Terminal | None:
    """The terminal kind of an event, if it is one.

    Data that is no JSON object leaves the event line to decide; an event that the end of the stream cut
    off (`ended` false) then only counts as an error, for its data may be half of something else.
    """
    if is_done(dialect, event.data):
        return "complete"
    try:
        payload = loads(event.data)
    except ValueError:
        try:
            payload = loads_replacing(event.data)
        except ValueError:
            payload = None
    if isinstance(payload, dict):
        return payload_terminal(dialect, event.event, payload)
    return bare_terminal(dialect, event)


def bare_terminal(dialect: DialectName, event: SSEvent) -> Terminal | None:
    """The terminal kind of an event whose data is no JSON object."""
    kind = KINDS[dialect].get(event.event)
    return kind if event.ended or kind == "error" else None
