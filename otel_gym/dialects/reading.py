"""What a whole stream said, and what every dialect's accumulator has in common."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from otel_gym.dialects.jsontext import loads
from otel_gym.dialects.names import DialectName, Terminal
from otel_gym.dialects.sse import SSEDecoder, SSEvent
from otel_gym.dialects.terminal import DONE, ENDING, bare_terminal, is_done, payload_terminal


@dataclass(slots=True)
class StreamReading:
    """A stream put together again."""

    response: dict[str, Any] | None
    """The response as the dialect's non-streaming call would give it, as far as it came; null where nothing came."""
    terminal: Terminal | None
    """How the stream said that it ended; null where it did not say."""
    error: object | None
    """The error that came inside the stream, as it came."""
    unmerged: list[Any] = field(default_factory=list)
    """Parts that have no place in `response`: unknown events, damaged data, values that disagree."""
    events: int = 0
    """Events with data."""


class Accumulator(Protocol):
    """Puts the events of one stream together; no I/O; never raises, whatever the events."""

    def feed(self, event: SSEvent) -> None:
        """Take the next event."""

    def finish(self) -> StreamReading:
        """What the stream said; the accumulator is not used afterwards."""


class EventAccumulator:
    """What the dialects share: JSON, terminals, in-band errors and what could not be merged."""

    dialect: DialectName

    def __init__(self) -> None:
        self.terminal: Terminal | None = None
        self.error: object | None = None
        self.unmerged: list[Any] = []
        self.events = 0

    def feed(self, event: SSEvent) -> None:
        """Take the next event."""
        self.events += 1
        data = event.data
        if data[:1] != b"{":
            if data == b"":
                return
            if is_done(self.dialect, data) or data.strip() == DONE:
                if self.terminal is None and is_done(self.dialect, data):
                    self.terminal = "complete"
                if data.strip() != DONE:
                    self._keep_data(event)
                return
        try:
            payload = loads(data)
        except ValueError:
            payload = None
        if not isinstance(payload, dict):
            if self.terminal is None:
                self.terminal = bare_terminal(self.dialect, event)
            self._keep_data(event)
            return
        kind = payload.get("type")
        if self.terminal is None and (
            "error" in payload
            or event.event in ENDING
            or (kind.__class__ is str and kind in ENDING)
            or payload.get("object") == "error"
        ):
            self.terminal = payload_terminal(self.dialect, event.event, payload)
        self.merge(event.event, payload)

    def merge(self, event: str, payload: dict[str, Any]) -> None:
        """Merge one JSON object; the dialect's own part."""
        raise NotImplementedError

    def result(self) -> dict[str, Any] | None:
        """The response; the dialect's own part."""
        raise NotImplementedError

    def finish(self) -> StreamReading:
        """What the stream said."""
        return StreamReading(self.result(), self.terminal, self.error, self.unmerged, self.events)

    def _keep_data(self, event: SSEvent) -> None:
        """Keep data that is no JSON object."""
        entry: dict[str, Any] = {"event": event.event} if event.event else {}
        try:
            entry["data"] = event.data.decode("utf-8")
        except UnicodeDecodeError:
            entry["data_b64"] = base64.b64encode(event.data).decode("ascii")
        if bare_terminal(self.dialect, event) == "error" and self.error is None:
            self.error = entry.get("data", entry.get("data_b64"))
        self.unmerged.append(entry)

    def conflict(self, path: str, value: object) -> None:
        """Keep a value that disagrees with the one in the response at `path`."""
        self.unmerged.append({"path": path, "value": value})


def feed_all(accumulator: Accumulator, chunks: Iterable[bytes]) -> StreamReading:
    """Decode all the bytes of a stream into an accumulator and finish it."""
    decoder = SSEDecoder()
    for event in decoder.feed(b"".join(chunks)):
        accumulator.feed(event)
    for event in decoder.finish():
        accumulator.feed(event)
    return accumulator.finish()
