"""Server-sent events, decoded incrementally after the WHATWG specification.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation

Two departures, both for evidence: an event that the end of the stream cuts off before its blank line is
given by `finish()` with `ended=False` instead of being dropped, and `data` stays bytes, so that text which
is not UTF-8 can be kept as it came.
"""

from __future__ import annotations

from typing import NamedTuple

BOM = b"\xef\xbb\xbf"


class SSEvent(NamedTuple):
    """One event: its type (empty where there was no `event` line) and its data lines joined by LF."""

    event: str
    data: bytes
    ended: bool = True
    """False where the stream ended before the blank line that ends an event."""


_new = tuple.__new__


class SSEDecoder:
    """`feed(chunk)` gives the events completed by the chunk, `finish()` what is left at the end.

    Linear in the bytes whatever the chunking: a line that is still open is kept as a list of pieces and
    joined once, when its end arrives.
    """

    __slots__ = ("_at_start", "_data", "_event", "_partial", "_skip_lf")

    def __init__(self, *, at_start: bool = True) -> None:
        """`at_start` is false for a decoder that begins at a later block, where a BOM is not removed."""
        self._at_start = at_start
        self._partial: list[bytes] = []
        self._data: list[bytes] = []
        self._event = b""
        self._skip_lf = False

    @property
    def idle(self) -> bool:
        """True between two events: nothing of the next one has been seen."""
        return not (self._partial or self._data or self._event)

    @property
    def open_data(self) -> list[bytes]:
        """The complete data lines of the event that is still open."""
        return self._data

    def feed(self, chunk: bytes) -> list[SSEvent]:
        """Take the next bytes of the stream and give the events that they complete."""
        if not chunk:
            return []
        if self._at_start:
            chunk = self._without_bom(chunk)
            if not chunk:
                return []
        if self._skip_lf:
            self._skip_lf = False
            if chunk[0] == 10:
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = chunk.rfind(b"\n") + 1
        if not end:
            if chunk:
                self._partial.append(chunk)
            return []
        lines = chunk if end == len(chunk) else chunk[:end]
        if self._partial:
            self._partial.append(lines)
            lines = b"".join(self._partial)
            self._partial.clear()
        if end != len(chunk):
            self._partial.append(chunk[end:])
        return self._take(lines)

    def finish(self) -> list[SSEvent]:
        """End of stream: the last event, complete or not; the decoder is then empty."""
        self._at_start = False
        if self._partial:
            rest = b"".join(self._partial)
            self._partial.clear()
            if rest:
                self._open(rest)
        events: list[SSEvent] = []
        if self._data:
            events.append(
                SSEvent(self._event.decode("utf-8", "replace"), b"\n".join(self._data), ended=False)
            )
        self._data = []
        self._event = b""
        return events

    def _without_bom(self, chunk: bytes) -> bytes:
        if self._partial:
            chunk = b"".join(self._partial) + chunk
            self._partial.clear()
        if len(chunk) < len(BOM) and BOM.startswith(chunk):
            self._partial.append(chunk)
            return b""
        self._at_start = False
        return chunk.removeprefix(BOM)

    def _take(self, lines: bytes) -> list[SSEvent]:
        """Interpret whole lines; `lines` ends with LF."""
        events: list[SSEvent] = []
        if self._data or self._event:
            if lines[0] == 10:
                self._dispatch(events)
                lines = lines[1:]
            else:
                end = lines.find(b"\n\n")
                if end < 0:
                    self._open(lines[:-1])
                    return events
                self._open(lines[:end])
                self._dispatch(events)
                lines = lines[end + 2 :]
        blocks = lines.split(b"\n\n")
        rest = blocks.pop()
        for block in blocks:
            head, line_end, data = block.partition(b"\n")
            if not line_end:
                if head[:6] == b"data: ":
                    events.append(_new(SSEvent, ("", head[6:], True)))
                    continue
            elif data[:6] == b"data: " and head[:7] == b"event: " and b"\n" not in data:
                event = head[7:].decode("utf-8", "replace")
                events.append(_new(SSEvent, (event, data[6:], True)))
                continue
            if block:
                self._open(block)
                self._dispatch(events)
        if rest and rest != b"\n":
            self._open(rest[:-1])
        return events

    def _open(self, block: bytes) -> None:
        """Add the fields of some lines to the open event."""
        for line in block.split(b"\n"):
            if line[:5] == b"data:":
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line[:6] == b"event:":
                self._event = line[7:] if line[6:7] == b" " else line[6:]
            elif line == b"data":
                self._data.append(b"")
            elif line == b"event":
                self._event = b""

    def _dispatch(self, events: list[SSEvent]) -> None:
        data = self._data
        if data:
            events.append(
                SSEvent(
                    self._event.decode("utf-8", "replace") if self._event else "",
                    data[0] if len(data) == 1 else b"\n".join(data),
                )
            )
            self._data = []
        self._event = b""


def is_event_stream(content_type: str) -> bool:
    """Whether a Content-Type header names an event stream; media types compare case-insensitively."""
    return content_type.split(";", 1)[0].strip().lower() == "text/event-stream"


def looks_like_event_stream(body: bytes) -> bool:
    """Whether a body without a usable content type begins as an event stream does."""
    head = body[:4096].removeprefix(BOM).lstrip(b"\r\n")
    return head.startswith((b"data:", b"event:", b"id:", b"retry:", b":"))
