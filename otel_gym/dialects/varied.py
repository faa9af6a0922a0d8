"""Runs of events that differ in one text and in values that carry nothing, as a number that counts the events."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from otel_gym.dialects.runs import Growth, Run
from otel_gym.dialects.sse import SSEvent

_Hole = Callable[[bytes, int], re.Match[bytes] | None]

_Step = tuple[bytes, int, _Hole]
"""What is always the same, its length, and what may follow it."""

_TEXT: _Hole = re.compile(
    rb"(?:[ !#-\[\]-\x7f]++"
    rb'|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    rb"|[\xc2-\xdf][\x80-\xbf]"
    rb"|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*+"
).match
"""The inside of a JSON string that is valid wherever it stands: whole characters of UTF-8, no half of a surrogate pair."""
_NUMBER: _Hole = re.compile(rb"0(?![0-9])|[1-9][0-9]{0,15}+(?![0-9])").match
_PADDING: _Hole = re.compile(rb"[ !#-\[\]-~]*+").match
_KINDS: tuple[tuple[type, re.Pattern[bytes], _Hole, bytes, Any], ...] = (
    (int, re.compile(rb"(?:0|[1-9][0-9]{0,15})(?=[,}\s])"), _NUMBER, b"9007199", 9007199),
    (str, re.compile(rb'(?<=")[ !#-\[\]-~]*(?=")'), _PADDING, b"7f3a other", "7f3a other"),
)
"""For each type that a value without a meaning may have: how it is written, what may stand in its place, and another value."""
_OTHER_TEXT = "7f3a: another text"


class VariedRun(Run):
    """A run whose events have further holes beside the text; each event is walked through, none is parsed."""

    __slots__ = ("_end", "_in_data", "_in_stream")

    def __init__(
        self, event: str, constants: list[bytes], holes: list[_Hole], growth: Growth
    ) -> None:
        first, *between, end = constants
        super().__init__(event, first, end, growth.target, growth.still_holds, growth.part)
        self._in_data = _steps([first, *between], holes)
        self._in_stream = _steps([self._lead, *between], holes)
        self._end = end

    def matches(self, event: SSEvent) -> bool:
        """Collect the text of an event of this run; false for any other event."""
        return event.event == self._event and self._collect(event.data, 0, self._in_data, b"") > 0

    def collect_ahead(self, stream: bytes, position: int) -> tuple[int, int]:
        """Collect the events of this run that stand in a stream with LF line ends from `position` on, one after
        another; (where the next event begins, how many were collected).
        """
        before = len(self._pieces)
        position = self._collect(stream, position, self._in_stream, b"\n\n")
        return position, len(self._pieces) - before

    def _collect(self, data: bytes, position: int, steps: list[_Step], end: bytes) -> int:
        """Collect the events from `position` on, each with `end` after it, or the one that is all of `data` where
        `end` is empty; gives the end of the last one.
        """
        begins, size = data.startswith, len(data)
        last = self._end + end
        collect = self._pieces.append
        text = b""
        while position < size:
            at = position
            for constant, length, hole in steps:
                if not begins(constant, at):
                    return position
                found = hole(data, at + length)
                if found is None:
                    return position
                at = found.end()
                if hole is _TEXT:
                    text = found[0]
            if not begins(last, at):
                return position
            at += len(last)
            if not end and at != size:
                return position
            collect(text)
            position = at
        return position

    def flush(self) -> list[SSEvent]:
        """Append the collected texts to the target; each was found valid by itself."""
        if self._pieces:
            self._target.append(orjson.loads(b'"' + b"".join(self._pieces) + b'"'))
            self._pieces = []
        return []


def _steps(constants: list[bytes], holes: list[_Hole]) -> list[_Step]:
    return [
        (constant, len(constant), hole) for constant, hole in zip(constants, holes, strict=True)
    ]


def varied_run(event: SSEvent, growth: Growth, names: tuple[str, ...]) -> VariedRun | None:
    """The run that an event begins whose fields `names` carry nothing; null where it has none of them, or where that
    nothing but them and the text can differ in events of this form cannot be proved.
    """
    data = event.data
    try:
        payload = orjson.loads(data)
        spans: list[tuple[int, int, _Hole, bytes]] = [
            (*_span(data, orjson.dumps(growth.text), 1), _TEXT, _OTHER_TEXT.encode())
        ]
        others = {}
        for name in names:
            if name in payload:
                start, hole, other, value = _value(data, name, payload[name])
                spans.append((*start, hole, other))
                others[name] = value
        if not others or b"\n" in data:
            return None
        spans.sort(key=lambda span: span[0])
        constants, probe, at = [], b"", 0
        for begin, end, _, other in spans:
            constants.append(data[at:begin])
            probe += data[at:begin] + other
            at = end
        constants.append(data[at:])
        probed = orjson.loads(probe + data[at:])
        if not _differs_only(probed, payload, growth, others):
            return None
    except (ValueError, LookupError, TypeError):
        return None
    return VariedRun(event.event, constants, [span[2] for span in spans], growth)


def _span(data: bytes, value: bytes, quotes: int) -> tuple[int, int]:
    """Where a value stands that occurs once, without its quotes. Raises LookupError."""
    if data.count(value) != 1:
        raise LookupError(value)
    begin = data.index(value)
    return begin + quotes, begin + len(value) - quotes


def _value(data: bytes, name: str, value: object) -> tuple[tuple[int, int], _Hole, bytes, Any]:
    """(where the value of a field stands, what may stand there, another value, the same parsed). Raises LookupError."""
    for kind, form, hole, other, parsed in _KINDS:
        if value.__class__ is kind:
            key = b'"' + name.encode() + b'":'
            _, after = _span(data, key, 0)
            begin = after + (data[after : after + 1] == b" ") + (kind is str)
            found = form.match(data, begin)
            if found is not None:
                return found.span(), hole, other, parsed
    raise LookupError(name)


def _differs_only(
    probed: Any, payload: dict[str, Any], growth: Growth, others: dict[str, Any]
) -> bool:
    """Whether a payload in which all holes have another value is the same but for them."""
    holder, key = growth.path(probed)
    if holder[key] != _OTHER_TEXT:
        return False
    holder[key] = growth.text
    for name, value in others.items():
        if probed[name] != value:
            return False
        probed[name] = payload[name]
    return bool(probed == payload)
