"""What a whole stream said, and what every dialect's accumulator has in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from otel_gym.dialects.jsontext import loads, loads_replacing, text_or_base64
from otel_gym.dialects.merge import settle
from otel_gym.dialects.names import DialectName, Terminal
from otel_gym.dialects.runs import Growth, Run, split_around
from otel_gym.dialects.sse import SSEDecoder, SSEvent
from otel_gym.dialects.terminal import DONE, ENDING, bare_terminal, is_done, payload_terminal
from otel_gym.dialects.varied import varied_run


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


_SLICE_BYTES = 4096
"""Bytes that are decoded in one go where there is no run."""


class EventAccumulator:
    """What the dialects share: JSON, terminals, in-band errors and what could not be merged."""

    dialect: DialectName
    meaningless: tuple[str, ...] = ()
    """Fields of an event with values that the merging leaves out."""

    def __init__(self) -> None:
        self.terminal: Terminal | None = None
        self.error: object | None = None
        self.unmerged: list[Any] = []
        self.events = 0
        self.growth: Growth | None = None
        """Set by `merge` where the event did nothing but append a text."""
        self._run: Run | None = None
        self._fruitless = 0
        self._skip = 0

    def feed(self, event: SSEvent) -> None:
        """Take the next event."""
        self.events += 1
        run = self._run
        if run is not None:
            if run.matches(event):
                return
            self._flush(run)
        self._feed(event)
        if self._run is not None:
            if not self._run.still_holds():
                self._run = None
        elif self.growth is not None:
            self._begin_run(event, self.growth)

    def feed_lines(self, decoder: SSEDecoder, data: bytes) -> None:
        """Take a whole stream with LF line ends; what belongs to a run is not even decoded."""
        position, size = 0, len(data)
        while position < size:
            run = self._run
            if run is not None:
                ahead, count = run.collect_ahead(data, position)
                if count:
                    self.events += count
                    position = ahead
                    continue
            end = data.rfind(b"\n\n", position, position + _SLICE_BYTES) + 2
            if end < 2:
                end = data.find(b"\n\n", position) + 2
                if end < 2:
                    end = size
            for event in decoder.feed(data[position:end]):
                self.feed(event)
            position = end

    def may_begin_run(self) -> bool:
        """Whether `growth` is of use now: a run is looked for ever more rarely where that never found any."""
        if self._run is not None:
            return False
        if self._skip:
            self._skip -= 1
            return False
        return True

    def _begin_run(self, event: SSEvent, growth: Growth) -> None:
        """Look for events like this one."""
        self._run = varied_run(event, growth, self.meaningless) if self.meaningless else None
        if self._run is None:
            parts = split_around(event.data, growth.text, growth.path)
            if parts is not None:
                self._run = Run(event.event, *parts, growth.target, growth.still_holds, growth.part)
        self._fruitless += 1
        self._skip = min(2**self._fruitless, 256)

    def _flush(self, run: Run) -> None:
        """Take over what a run has collected."""
        if run.collected:
            self._fruitless = self._skip = 0
            self.resume(run.index)
        else:
            self._run = None
        for event in run.flush():
            self._feed(event)
            self._run = None

    def resume(self, index: int) -> None:
        """A run of events of the part `index` is over; for dialects that remember the last part."""

    def _feed(self, event: SSEvent) -> None:
        """Parse one event and merge it."""
        self.growth = None
        data = event.data
        if data[:1] != b"{":
            bare = data.strip()
            if is_done(self.dialect, data):
                if self.terminal is None:
                    self.terminal = "complete"
                if bare != DONE:
                    self._keep_data(event)
                return
            if bare in (b"", DONE):
                if self.terminal is None:
                    self.terminal = bare_terminal(self.dialect, event)
                return
        try:
            payload = loads(data)
        except ValueError:
            payload = self._damaged(event)
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
        if self._run is not None:
            self._flush(self._run)
        response = self.result()
        unmerged: list[Any] = settle(self.unmerged)
        return StreamReading(response, self.terminal, self.error, unmerged, self.events)

    def _damaged(self, event: SSEvent) -> Any:
        """An object in which bytes are not UTF-8, read with replacement characters; its bytes are kept."""
        try:
            payload = loads_replacing(event.data)
        except ValueError:
            return None
        if isinstance(payload, dict):
            self.unmerged.append(_entry(event))
            return payload
        return None

    def _keep_data(self, event: SSEvent) -> None:
        """Keep data that is no JSON object."""
        entry = _entry(event)
        if bare_terminal(self.dialect, event) == "error" and self.error is None:
            self.error = entry.get("data", entry.get("data_b64"))
        self.unmerged.append(entry)

    def conflict(self, path: str, value: object) -> None:
        """Keep a value that disagrees with the one in the response at `path`."""
        self.unmerged.append({"path": path, "value": value})


def _entry(event: SSEvent) -> dict[str, Any]:
    """An event as it came, for `unmerged`."""
    entry: dict[str, Any] = {"event": event.event} if event.event else {}
    text, encoded = text_or_base64(event.data)
    if text is not None:
        entry["data"] = text
    else:
        entry["data_b64"] = encoded
    return entry


def feed_all(accumulator: Accumulator, chunks: Iterable[bytes]) -> StreamReading:
    """Decode all the bytes of a stream into an accumulator and finish it."""
    data = b"".join(chunks)
    decoder = SSEDecoder()
    if isinstance(accumulator, EventAccumulator) and b"\r" not in data:
        accumulator.feed_lines(decoder, data)
    else:
        for event in decoder.feed(data):
            accumulator.feed(event)
    for event in decoder.finish():
        accumulator.feed(event)
    return accumulator.finish()
