"""Asking an engine for the usage of a stream whose caller did not, and keeping the answer from them.

Chat Completions and Completions report usage of a stream only where the request says
`stream_options: {"include_usage": true}`; the last chunk then has empty `choices` and the usage.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from otel_gym.dialects.jsontext import loads
from otel_gym.dialects.names import DialectName
from otel_gym.dialects.sse import SSEDecoder

_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_SEAM_BYTES = 3


def add_stream_usage(dialect: DialectName, request: dict[str, Any]) -> dict[str, Any] | None:
    """A copy of the request that asks for usage; null where there is nothing to ask.

    That is: another dialect, no stream, options that are no object, or a caller who said what they want.
    """
    if dialect not in ("chat", "completions") or request.get("stream") is not True:
        return None
    options = request.get("stream_options")
    if options is None:
        options = {}
    if not isinstance(options, dict) or options.get("include_usage") is not None:
        return None
    return {**request, "stream_options": {**options, "include_usage": True}}


def usage_only_payload(event: bytes) -> dict[str, Any] | None:
    """The payload of a chunk that has usage and empty `choices`; null for the bytes of any other event."""
    if b"usage" not in event and b"\\u00" not in event:
        return None
    decoder = SSEDecoder(at_start=False)
    events = decoder.feed(event) + decoder.finish()
    if len(events) != 1:
        return None
    try:
        payload = loads(events[0].data)
    except ValueError:
        return None
    if not isinstance(payload, dict) or payload.get("choices") != []:
        return None
    return payload if isinstance(payload.get("usage"), dict) else None


class UsageChunkFilter:
    """Takes the usage-only chunk out of an event stream; no other byte is changed.

    `feed(chunk)` gives the bytes to send on. An event is held back until its blank line, and passed on
    unexamined where it grows beyond `max_held_bytes` (a usage chunk has a few hundred).
    """

    __slots__ = ("_after_cr", "_held", "_max_held_bytes", "_passing", "dropped")

    def __init__(self, max_held_bytes: int = 16 * 1024) -> None:
        self._max_held_bytes = max_held_bytes
        self._held = b""
        self._passing = False
        self._after_cr: Literal["sent", "dropped"] | None = None
        self.dropped: list[bytes] = []
        """The events that were taken out, as they came."""

    def notes(self) -> dict[str, Any]:
        """What the record has to know: `stream_usage_requested`, and `stream_usage_chunk` where one came."""
        found: dict[str, Any] = {"stream_usage_requested": True}
        if self.dropped:
            found["stream_usage_chunk"] = b"".join(self.dropped).decode("utf-8", "replace")
        return found

    def feed(self, chunk: bytes) -> bytes:
        """Take bytes from the engine and give those for the caller."""
        if not chunk:
            return b""
        out = bytearray()
        if self._after_cr is not None:
            # The event before ended with CR at the end of its chunk; LF now is the rest of that line end.
            if chunk[:1] == b"\n":
                if self._after_cr == "sent":
                    out += b"\n"
                chunk = chunk[1:]
            self._after_cr = None
        data = self._held + chunk
        unsent = len(self._held) if self._passing else 0
        start = 0
        search = max(0, len(self._held) - _SEAM_BYTES)
        while found := _BLANK_LINE.search(data, search):
            start, search = self._take(out, data, max(start, unsent), found.end()), found.end()
        rest = data[max(start, unsent) :]
        if self._passing or len(rest) > self._max_held_bytes:
            self._passing = True
            out += rest
            self._held = data[start:][-_SEAM_BYTES:]
        else:
            self._held = rest
        return bytes(out)

    def finish(self) -> bytes:
        """The end of the stream: what was still held, unless it is the usage chunk without its blank line."""
        held, self._held = self._held, b""
        if self._passing or not held:
            return b""
        if usage_only_payload(held) is not None:
            self.dropped.append(held)
            return b""
        return held

    def _take(self, out: bytearray, data: bytes, start: int, end: int) -> int:
        """Send or drop one whole event."""
        event = data[start:end]
        dropped = not self._passing and usage_only_payload(event) is not None
        if dropped:
            self.dropped.append(event)
        else:
            out += event
        self._passing = False
        if end == len(data) and data[end - 1] == 13:
            self._after_cr = "dropped" if dropped else "sent"
        return end
