"""The error category of an exchange.

null                      no error seen; also every 3xx
├── by status             timeout 408 504 · rate_limit 429 · auth 401 403 · not_found 404
│                         client_error other 4xx · upstream_error 5xx
├── by stream             upstream_error (error event) · incomplete (response.incomplete)
│                         cancelled (response.cancelled) · stream_truncated (no terminal event)
├── by ending             cancelled (task cancelled, or client gone before the terminal event)
│                         timeout · connection · exception (of the application)
├── by content            capture_parse_error (a 2xx body that is no JSON object and no stream)
└── by adapter            context_length_exceeded (overrides the others)
"""

from __future__ import annotations

import asyncio
from typing import Final

from otel_gym.capture.facts import Ending
from otel_gym.dialects import Terminal

CATEGORIES: Final = (
    "auth",
    "cancelled",
    "capture_parse_error",
    "client_error",
    "connection",
    "context_length_exceeded",
    "exception",
    "incomplete",
    "not_found",
    "rate_limit",
    "stream_truncated",
    "timeout",
    "upstream_error",
)


def error_category(
    *,
    ending: Ending,
    exception: BaseException | None,
    adapter_reason: object,
    status: int | None,
    streamed: bool,
    terminal: Terminal | None,
    response_status: object,
    understood: bool,
) -> str | None:
    """The category of a finished exchange.

    `ending` and `exception` say how the application left it, `adapter_reason` is the
    `local_response_reason` of an adapter.
    `status` is the one that was sent, or that the exception carries; `terminal` the stream's;
    `response_status` the `status` of a Responses object; `understood` whether the body is empty, cut by
    the recording limit, or was made sense of.
    """
    if adapter_reason == "context_length_exceeded":
        return "context_length_exceeded"
    ended = streamed and terminal is not None
    if ending in ("cancelled", "disconnected") and not ended:
        return "cancelled"
    if ending == "exception":
        return status_category(status) or exception_category(exception)
    if status is None:
        return "exception" if ending == "returned" else None
    if status >= 400:
        return status_category(status)
    if streamed:
        if terminal is None:
            return "stream_truncated"
        if terminal == "error":
            return "upstream_error"
        if terminal == "incomplete":
            return "cancelled" if response_status == "cancelled" else "incomplete"
    if 200 <= status < 300 and not understood:
        return "capture_parse_error"
    return None


def status_category(status: int | None) -> str | None:
    """The category of an HTTP status; null below 400."""
    if status is None or status < 400:
        return None
    if status in (408, 504):
        return "timeout"
    if status == 429:
        return "rate_limit"
    if status in (401, 403):
        return "auth"
    if status == 404:
        return "not_found"
    return "client_error" if status < 500 else "upstream_error"


def exception_category(exception: BaseException | None) -> str:
    """The category of an exception by its type."""
    if isinstance(exception, asyncio.CancelledError):
        return "cancelled"
    name = type(exception).__name__.lower()
    if isinstance(exception, TimeoutError) or "timeout" in name:
        return "timeout"
    if isinstance(exception, ConnectionError) or "conn" in name:
        return "connection"
    return "exception"
