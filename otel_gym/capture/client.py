"""Who made a call, as far as allow-listed request headers say.

Nothing else of the headers is kept: they carry keys, cookies and account ids. Which product sends which header was observed on the wire; a header that
a product does not send leaves its field null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import orjson

from otel_gym.errors import SettingsError

SESSION_HEADERS: Final = ("x-session-id", "x-claude-code-session-id", "session-id", "thread-id")
AGENT_HEADERS: Final = ("x-claude-code-agent-id", "x-openai-subagent")
PARENT_HEADERS: Final = ("x-parent-session-id", "x-codex-parent-thread-id")
TURN_METADATA: Final = "x-codex-turn-metadata"
RETRY_COUNT: Final = "x-stainless-retry-count"
SECRET_HEADERS: Final = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "cookie",
        "set-cookie",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "chatgpt-account-id",
    }
)
"""Headers that are never written, whatever the allow-list says."""

_SESSIONS: Final = frozenset(SESSION_HEADERS)

MAX_VALUE_LENGTH: Final = 1024
"""Longest kept value, in characters; a longer one is cut."""

_NAMES: Final = frozenset(
    name.encode()
    for name in (
        *SESSION_HEADERS,
        *AGENT_HEADERS,
        *PARENT_HEADERS,
        TURN_METADATA,
        RETRY_COUNT,
        "traceparent",
        "tracestate",
        "baggage",
        "content-encoding",
        "content-type",
    )
)


@dataclass(slots=True)
class RequestHeaders:
    """The few request headers that matter, each with all its values."""

    values: dict[str, list[str]] = field(default_factory=dict)

    def one(self, name: str) -> str | None:
        """The value of `name` where it has exactly one distinct non-empty value."""
        values = self.values.get(name)
        if values is None:
            return None
        if len(values) == 1:
            return values[0] or None
        distinct = {value for value in values if value}
        return distinct.pop() if len(distinct) == 1 else None

    def first_of(self, names: Iterable[str]) -> str | None:
        """The first of `names` that has exactly one value."""
        for name in names:
            value = self.one(name)
            if value is not None:
                return value
        return None


class HeaderPicker:
    """Reads the headers that are worth keeping, by one pass over a request's headers."""

    def __init__(self, span_headers: Iterable[str] = (), span_baggage: Iterable[str] = ()) -> None:
        self._span_headers = tuple(name.lower() for name in span_headers)
        self._span_baggage = frozenset(span_baggage)
        for name in self._span_headers:
            if name in SECRET_HEADERS:
                raise SettingsError(
                    f"otel_gym.span_headers: {name!r} carries secrets and is never recorded; remove it"
                )
        self._names = {name: name.decode() for name in _NAMES}
        self._names |= {name.encode(): name for name in self._span_headers}
        self._telling = frozenset(
            {*AGENT_HEADERS, *PARENT_HEADERS, TURN_METADATA, "baggage", *self._span_headers}
        )

    def pick(self, headers: Iterable[tuple[bytes, bytes]]) -> RequestHeaders:
        """The kept headers of an ASGI scope (names are lower case there)."""
        picked: dict[str, list[str]] = {}
        names = self._names
        for name, value in headers:
            kept = names.get(name)
            if kept is not None:
                text = value.decode("latin-1").strip()[:MAX_VALUE_LENGTH]
                picked.setdefault(kept, []).append(text)
        return RequestHeaders(picked)

    def client(self, headers: RequestHeaders) -> dict[str, Any] | None:
        """The `client` part of a record; null where nothing is known."""
        if self._telling.isdisjoint(headers.values):
            return None
        client: dict[str, Any] = {
            "agent_id": headers.first_of(AGENT_HEADERS),
            "parent_id": headers.first_of(PARENT_HEADERS),
            "request_kind": _request_kind(headers.one(TURN_METADATA)),
            "headers": {
                name: headers.values[name][0]
                for name in self._span_headers
                if name in headers.values
            },
            "baggage": self._baggage(headers.values.get("baggage", ()))
            if self._span_baggage
            else {},
        }
        return client if any(client.values()) else None

    def _baggage(self, values: Iterable[str]) -> dict[str, str]:
        """Chosen members of a baggage header: https://www.w3.org/TR/baggage/."""
        found: dict[str, str] = {}
        for value in values:
            for member in value.split(","):
                key, separator, rest = member.partition("=")
                if separator and key.strip() in self._span_baggage:
                    found[key.strip()] = unquote(rest.partition(";")[0].strip())
        return found


def session_of(headers: RequestHeaders) -> str | None:
    """The session that the caller says the call belongs to, null where it says none."""
    return None if _SESSIONS.isdisjoint(headers.values) else headers.first_of(SESSION_HEADERS)


def retry_count_of(headers: RequestHeaders) -> int:
    """How many times the client library says it has sent this request before; 0 where it does not say."""
    value = headers.one(RETRY_COUNT)
    return int(value) if value is not None and value.isascii() and value.isdigit() else 0


def _request_kind(metadata: str | None) -> str | None:
    if metadata is None:
        return None
    try:
        value: Any = orjson.loads(metadata)
    except orjson.JSONDecodeError:
        return None
    kind = value.get("request_kind") if isinstance(value, Mapping) else None
    return kind if isinstance(kind, str) else None
