"""Which header fields pass between a caller and the engine, and which belong to one connection only.

RFC 9110 section 7.6.1: fields named by `Connection`, and those below, are not forwarded. Everything else is, in the order in which it came.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

Headers = list[tuple[bytes, bytes]]
"""Header fields as ASGI has them: lower-case names, repeated fields repeated."""

_HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_SET_HERE: Final = frozenset((b"host", b"content-length", b"expect"))
"""Request fields that are made anew: the engine's own host, the length of what is really sent; a 100-continue was answered by our server."""


def end_to_end(fields: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The fields that are meant for the other end, names in lower case."""
    lowered = [(name.lower(), value) for name, value in fields]
    named = {
        token.strip().lower()
        for name, value in lowered
        if name == b"connection"
        for token in value.split(b",")
    }
    return [
        (name, value) for name, value in lowered if name not in _HOP_BY_HOP and name not in named
    ]


def request_headers(fields: Iterable[tuple[bytes, bytes]]) -> Headers:
    """A caller's fields as they go to the engine, without host and framing."""
    return [(name, value) for name, value in end_to_end(fields) if name not in _SET_HERE]


def value_of(fields: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The value of the first field `name` (lower case), null where there is none."""
    return next((value for key, value in fields if key.lower() == name), None)


def without(fields: Headers, *names: bytes) -> Headers:
    """`fields` less those of the given lower-case names."""
    return [(key, value) for key, value in fields if key not in names]


def with_key(fields: Headers, api_key: str, engine_url: str) -> Headers:
    """`fields` with the engine's key in place of whatever key the caller sent.

    Anthropic's own API is given `x-api-key`; every other engine a Bearer token, and `x-api-key` as well where the caller used that.
    """
    key = api_key.encode()
    host = urlsplit(engine_url).hostname or ""
    anthropic = host == "anthropic.com" or host.endswith(".anthropic.com")
    keyed = without(fields, b"authorization", b"x-api-key")
    if not anthropic:
        keyed.append((b"authorization", b"Bearer " + key))
    if anthropic or value_of(fields, b"x-api-key") is not None:
        keyed.append((b"x-api-key", key))
    return keyed


def with_trace_context(fields: Headers, traceparent: str, tracestate: str | None) -> Headers:
    """`fields` with W3C trace context that makes the model call's span the parent of the engine's."""
    traced = without(fields, b"traceparent", b"tracestate")
    traced.append((b"traceparent", traceparent.encode()))
    if tracestate:
        traced.append((b"tracestate", tracestate.encode()))
    return traced
