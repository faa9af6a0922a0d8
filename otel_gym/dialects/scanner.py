"""Finding the end of a stream on the hot path, as it goes by."""

from __future__ import annotations

import re

from otel_gym.dialects.names import DialectName, Terminal
from otel_gym.dialects.sse import SSEDecoder, SSEvent
from otel_gym.dialects.terminal import KINDS, MARKERS, event_terminal, is_done

_ASCII_ESCAPE = b"\\u00"
_CARRY_BYTES = max(len(marker) for markers in MARKERS.values() for marker in markers) - 1
_TRIM_BYTES = 16 * 1024
_ANY_MARKER = re.compile(
    b"|".join(sorted({re.escape(m) for ms in MARKERS.values() for m in ms} | {rb"\\u00"}))
)
_MAX_PLAIN_BYTES = 16
_MAX_ALIKE_BYTES = 4096
_MAX_PLAIN_TEXTS = 16 * 1024
_PATIENCE = 256
"""What a stream may spend on learning: 1 for a new text, 4 where chunks become alike, 24 where they are not."""
_plain: set[bytes] = set()
"""Short texts that were looked at and hold nothing of any marker; shared by all streams, for models repeat their tokens."""
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")


_LINE_ENDED_TWICE = (b"\n\n", b"\r\n\r\n", b"\r\r")


class TerminalScanner:
    """Finds the terminal event of a stream on the event loop, for well under a microsecond a chunk.

    A chunk without a marker costs a few searches in C. A chunk with one sends the block it is in, and
    what follows, through the real decoder and the exact rule until the block has ended, so model text
    that mentions a marker is never taken for one, and what the full reading finds is never missed.

    Chunks that differ in nothing but a short text need not even be searched: where what stands before and after the
    text held no marker in an earlier chunk, and the text is known to hold none, there is none, for a marker holds no
    quote and so cannot begin in one of the three and end in the next.
    """

    __slots__ = (
        "_before",
        "_between",
        "_block",
        "_block_bytes",
        "_carry",
        "_decoder",
        "_dialect",
        "_first",
        "_lead",
        "_markers",
        "_patience",
        "_trail",
        "_trim_at",
        "terminal",
    )

    def __init__(self, dialect: DialectName) -> None:
        self._dialect = dialect
        self._markers = MARKERS[dialect]
        self._carry = b""
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._trim_at = _TRIM_BYTES
        self._decoder: SSEDecoder | None = None
        self._first = True
        self._lead: bytes | None = None
        self._trail = b""
        self._between = slice(0, 0)
        self._before = b""
        self._patience = _PATIENCE
        self.terminal: Terminal | None = None
        """The terminal seen so far."""

    def feed(self, chunk: bytes) -> Terminal | None:
        """The terminal kind once its event is complete on the wire (`[DONE]`: once its line is), else None.

        Once found it is given for every later chunk too.
        """
        if self._decoder is None:
            if (
                self._lead is not None
                and not self._block
                and chunk.startswith(self._lead)
                and chunk.endswith(self._trail)
                and chunk[self._between] in _plain
            ):
                return None
            # A marker holds no line end, so none can begin before a chunk that ended an event.
            window = self._carry + chunk if self._carry else chunk
            find = window.find
            for marker in self._markers:
                if find(marker) >= 0:
                    break
            else:
                if find(b"\\") < 0 or find(_ASCII_ESCAPE) < 0:
                    if chunk.endswith(_LINE_ENDED_TWICE):
                        if self._block:
                            self._forget()
                        elif self._patience > 0:
                            self._learn(chunk)
                        self._first = False
                    elif chunk:
                        self._keep(chunk, window)
                    return None
            self._decoder = SSEDecoder(at_start=self._first)
            if self._block:
                chunk = b"".join(self._block) + chunk
                self._forget()
            self._first = False
        if self.terminal is not None:
            return self.terminal
        return self._exact(chunk)

    def _learn(self, chunk: bytes) -> None:
        """Remember a whole event without a marker: its text, or what it has in common with the one before it."""
        self._patience -= 1
        if self._patience <= 0:
            self._lead = None
        if self._patience <= 0 or len(chunk) > _MAX_ALIKE_BYTES:
            return
        if self._lead is not None and chunk.startswith(self._lead) and chunk.endswith(self._trail):
            text = chunk[self._between]
            if len(text) <= _MAX_PLAIN_BYTES and not _ANY_MARKER.search(text):
                if len(_plain) >= _MAX_PLAIN_TEXTS:
                    _plain.clear()
                _plain.add(text)
            return
        self._patience -= 23
        before, self._before = self._before, chunk
        lead = chunk.rfind(b'"', 0, _alike(before, chunk)) + 1
        # The text ends before a quote that follows it in both, and does not reach back into what is before it.
        trail = chunk.find(b'"', max(len(chunk) - _alike_at_end(before, chunk), lead))
        if lead and lead <= trail <= lead + _MAX_PLAIN_BYTES:
            self._lead, self._trail = chunk[:lead], chunk[trail:]
            self._between = slice(lead, trail - len(chunk))
            self._patience += 20

    def _keep(self, chunk: bytes, window: bytes) -> None:
        """Keep a chunk of an event that goes on."""
        self._carry = window[-_CARRY_BYTES:]
        self._block.append(chunk)
        self._block_bytes += len(chunk)
        if self._block_bytes > self._trim_at:
            self._trim()

    def finish(self) -> Terminal | None:
        """The end of the stream: also looks at a last event without a blank line."""
        if self.terminal is None:
            decoder = self._decoder or SSEDecoder(at_start=self._first)
            if self._decoder is None and self._block:
                self._check(decoder.feed(b"".join(self._block)))
                self._forget()
            self._check(decoder.finish())
            self._decoder = None
        return self.terminal

    def _exact(self, chunk: bytes) -> Terminal | None:
        decoder = self._decoder
        assert decoder is not None
        self._check(decoder.feed(chunk))
        if self.terminal is None:
            lines = decoder.open_data
            if lines and len(lines[0]) < 64 and is_done(self._dialect, lines[0]):
                self.terminal = "complete"
            elif decoder.idle:
                self._decoder = None
        return self.terminal

    def _check(self, events: list[SSEvent]) -> None:
        for event in events:
            if self.terminal is None and (
                event.event in KINDS[self._dialect]
                or _ASCII_ESCAPE in event.data
                or any(marker in event.data for marker in self._markers)
            ):
                self.terminal = event_terminal(self._dialect, event)

    def _forget(self) -> None:
        self._carry = b""
        self._block.clear()
        self._block_bytes = 0
        self._trim_at = _TRIM_BYTES

    def _trim(self) -> None:
        """Drop the finished blocks among the chunks kept; amortised, so linear in the bytes."""
        kept = b"".join(self._block)
        if b"\r" in kept:
            end = 0
            for match in _BLANK_LINE.finditer(kept):
                end = match.end()
        else:
            end = kept.rfind(b"\n\n") + 2 if b"\n\n" in kept else 0
        if end:
            kept = kept[end:]
            self._first = False
        self._block = [kept] if kept else []
        self._block_bytes = len(kept)
        self._trim_at = max(_TRIM_BYTES, 2 * len(kept))


def _alike(one: bytes, other: bytes) -> int:
    """How many bytes two strings have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _alike_at_end(one: bytes, other: bytes) -> int:
    """How many bytes two strings have in common at their end."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle :] == other[len(other) - middle :]:
            low = middle
        else:
            high = middle - 1
    return low
