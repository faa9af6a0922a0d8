"""The response of a raw line computed again from the bytes that the line keeps; pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from otel_gym.capture.categories import error_category
from otel_gym.capture.raw_record import fill_usage, read_body, safe_read_stream
from otel_gym.capture.redact import REDACTED
from otel_gym.dialects import DIALECTS, DialectName, Terminal, looks_like_event_stream

MAX_DECODED_BYTES = 256 * 1024 * 1024
"""Most bytes that a body kept in its content encoding may expand to."""

_FROM_THE_STREAM = frozenset(
    {None, "stream_truncated", "upstream_error", "incomplete", "capture_parse_error"}
)
"""Categories that the stream itself decides where the status is a success."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A value of a line that its bytes say differently."""

    path: str
    stored: Any
    derived: Any


ABSENT = "<absent>"


def rederive(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[Difference]] | None:
    """The line with `response`, `error_category`, `stream` and `unmerged` as its bytes say, and what differs.

    Null where the line keeps no response bytes (a response that was JSON is stored as it was).
    """
    dialect = raw.get("dialect")
    data = _kept_bytes(raw)
    if not data or data == REDACTED.encode() or dialect not in DIALECTS:
        return None
    repaired = dict(raw)
    encoding = raw.get("response_raw_encoding")
    body = read_body(data, encoding if isinstance(encoding, str) else "", None, MAX_DECODED_BYTES)
    streamed = isinstance(raw.get("stream"), dict) or looks_like_event_stream(body.readable)
    if streamed:
        _read_stream(repaired, cast(DialectName, dialect), body.readable)
    elif body.value is not None:
        repaired["response"] = body.value
        if repaired.get("error_category") == "capture_parse_error":
            repaired["error_category"] = None
    else:
        return None
    found = [
        difference
        for name in ("response", "error_category", "stream", "unmerged")
        for difference in differences(name, raw.get(name, ABSENT), repaired.get(name, ABSENT))
    ]
    return repaired, found


def _read_stream(raw: dict[str, Any], dialect: DialectName, data: bytes) -> None:
    """Put what a stream says into the line."""
    reading = safe_read_stream(dialect, [data])
    fill_usage(reading.response, raw.get("stream_usage_chunk"))
    if reading.response is None and isinstance(raw.get("response"), dict):
        return
    raw["response"] = reading.response
    stream = raw.get("stream")
    terminal: Terminal | None = reading.terminal
    if isinstance(stream, dict):
        if raw.get("response_cut") is not None and stream.get("terminal") != "none":
            terminal = stream.get("terminal")
        raw["stream"] = {**stream, "terminal": terminal or "none"}
    raw.pop("unmerged", None)
    if reading.unmerged:
        raw["unmerged"] = reading.unmerged
    stored = raw.get("error_category")
    status = raw.get("status_code")
    if type(status) is not int or status >= 400:
        return
    if stored in _FROM_THE_STREAM or (stored == "cancelled" and terminal is not None):
        raw["error_category"] = error_category(
            ending="returned",
            exception=None,
            adapter_reason=raw.get("local_response_reason"),
            status=status,
            streamed=True,
            terminal=terminal,
            response_status=(reading.response or {}).get("status"),
            understood=reading.response is not None,
        )


def _kept_bytes(raw: Mapping[str, Any]) -> bytes:
    """The response bytes of a line, empty where it keeps none."""
    encoded = raw.get("response_raw_b64")
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except (ValueError, binascii.Error):
            return b""
    text = raw.get("response_raw")
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""


def differences(path: str, stored: Any, derived: Any) -> Iterator[Difference]:
    """Where two JSON values differ, as deep as they are alike."""
    if isinstance(stored, dict) and isinstance(derived, dict):
        for key in [*stored, *(key for key in derived if key not in stored)]:
            yield from differences(
                f"{path}.{key}", stored.get(key, ABSENT), derived.get(key, ABSENT)
            )
    elif isinstance(stored, list) and isinstance(derived, list) and len(stored) == len(derived):
        for position, (one, other) in enumerate(zip(stored, derived, strict=True)):
            yield from differences(f"{path}[{position}]", one, other)
    elif type(stored) is not type(derived) or stored != derived:
        yield Difference(path, stored, derived)
