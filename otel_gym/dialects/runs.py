"""Runs of events that differ in nothing but one text, which is nearly all of a stream: read without parsing each.

After an event that did nothing but append a text, its bytes are split around that text into a prefix and a
suffix. Parsing once with another text in between proves that whatever stands there, as long as it is by itself the
inside of a JSON string, is that text and changes nothing else. Events with the same prefix and suffix then only have
their text collected; the texts of a run are checked and decoded together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from otel_gym.dialects.merge import Pieces
from otel_gym.dialects.sse import SSEvent

_ESCAPED = re.compile(rb'(?:[^"\\\n]++|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4})*+')
"""The inside of a JSON string that means the same wherever it stands: no half of a surrogate pair."""
_PROBE = b"7f3a: another text"
_SEPARATOR = b"\x7f"
_MIN_PREFIX_BYTES = 8
_NEEDLE_BYTES = 12
"""Bytes before the text by which an event is found; a search for the whole of what stands between two texts costs five times as much."""
_FIRST_WINDOW_BYTES = 4 * 1024
_LAST_WINDOW_BYTES = 64 * 1024


class Growth(NamedTuple):
    """What an event appended, and to what."""

    text: str
    target: Pieces
    path: Callable[[Any], tuple[Any, str]]
    """(the object, the key) of the text in a payload like the event's."""
    still_holds: Callable[[], bool]
    """Whether another such event would still do nothing but append to `target`."""
    part: int = 0
    """The part of the response that it belongs to."""


class Run:
    """A run of events: `matches` collects one, `flush` appends what was collected."""

    __slots__ = (
        "_event", "_joint", "_lead", "_length", "_needle", "_pieces", "_prefix", "_suffix", "_tail", "_target",
        "_text_of", "_window_bytes", "index", "still_holds",
    )  # fmt: skip

    def __init__(
        self,
        event: str,
        prefix: bytes,
        suffix: bytes,
        target: Pieces,
        still_holds: Callable[[], bool],
        index: int,
    ) -> None:
        self._event = event
        self._prefix = prefix
        self._suffix = suffix
        self._length = len(prefix) + len(suffix)
        self._pieces: list[bytes] = []
        self._lead = (f"event: {event}\n" if event else "").encode() + b"data: " + prefix
        self._joint = joint = suffix + b"\n\n" + self._lead
        needle_bytes = (
            _NEEDLE_BYTES if joint.count(prefix[-_NEEDLE_BYTES:]) == 1 else len(joint) - 1
        )
        self._needle, self._tail = joint[-needle_bytes:], joint[:-needle_bytes]
        self._text_of = itemgetter(slice(None, -len(self._tail)))
        self._window_bytes = _FIRST_WINDOW_BYTES
        self._target = target
        self.still_holds = still_holds
        self.index = index

    @property
    def collected(self) -> bool:
        """Whether there is anything to flush."""
        return bool(self._pieces)

    def matches(self, event: SSEvent) -> bool:
        """Collect the text of an event of this run; false for any other event."""
        data = event.data
        if (
            data.startswith(self._prefix)
            and data.endswith(self._suffix)
            and event.event == self._event
            and len(data) >= self._length
        ):
            piece = data[len(self._prefix) : len(data) - len(self._suffix)]
            if (piece.find(b'"') < 0 and piece.find(b"\\") < 0) or _ESCAPED.fullmatch(piece):
                self._pieces.append(piece)
                return True
        return False

    def collect_ahead(self, stream: bytes, position: int) -> tuple[int, int]:
        """Collect the events of this run that stand in a stream with LF line ends from `position` on, one after
        another; (where the next event begins, how many were collected).

        The last one of a window is left for the next call, as its end is not known.
        """
        lead = self._lead
        if not stream.startswith(lead, position):
            return position, 0
        start = position + len(lead)
        window = stream[start : start + self._window_bytes]
        pieces = window.split(self._needle)
        pieces.pop()
        texts = list(map(self._text_of, pieces))
        text = b"".join(texts)
        if _all_whole(text, texts) and window.startswith(self._joint.join([*texts, b""])):
            self._window_bytes = min(2 * self._window_bytes, _LAST_WINDOW_BYTES)
        else:
            self._window_bytes = _FIRST_WINDOW_BYTES
            for number, (piece, one) in enumerate(zip(pieces, texts, strict=True)):
                if not piece.endswith(self._tail) or not _ESCAPED.fullmatch(one):
                    del texts[number:]
                    break
            text = b"".join(texts)
        self._pieces += texts
        return position + len(text) + len(self._joint) * len(texts), len(texts)

    def flush(self) -> list[SSEvent]:
        """Append the collected texts to the target; gives the events back where they are no valid text."""
        pieces = self._pieces
        if not pieces:
            return []
        self._pieces = []
        text = b"".join(pieces)
        try:
            if not text.isascii():
                # A separator between them keeps halves of a character in two events from making a whole one.
                orjson.loads(b'"' + _SEPARATOR.join(pieces) + b'"')
            self._target.append(orjson.loads(b'"' + text + b'"'))
        except ValueError:
            return [SSEvent(self._event, self._prefix + piece + self._suffix) for piece in pieces]
        return []


def _all_whole(text: bytes, texts: list[bytes]) -> bool:
    """Whether each of the texts, which are `text` together, is by itself the inside of a JSON string."""
    if text.find(b"\n") >= 0:
        return False
    if text.find(b"\\") < 0:
        return text.find(b'"') < 0
    return all(
        _ESCAPED.fullmatch(one) for one in texts if one.find(b"\\") >= 0 or one.find(b'"') >= 0
    )


def split_around(
    data: bytes, text: str, path: Callable[[Any], tuple[Any, str]]
) -> tuple[bytes, bytes] | None:
    """(prefix, suffix) of an event's data around `text`, which `path` finds in its payload; null where that cannot be proved."""
    try:
        needle = orjson.dumps(text)
    except TypeError:  # half of a surrogate pair
        return None
    if data.count(needle) != 1 or b"\n" in data:
        return None
    start = data.find(needle) + 1
    prefix, suffix = data[:start], data[start + len(needle) - 2 :]
    if len(prefix) < _MIN_PREFIX_BYTES:
        return None
    try:
        payload, probed = orjson.loads(data), orjson.loads(prefix + _PROBE + suffix)
        holder, key = path(payload)
        other, _ = path(probed)
        if holder[key] != text or other[key] != _PROBE.decode():
            return None
        other[key] = text
        return (prefix, suffix) if probed == payload else None
    except (ValueError, LookupError, TypeError):
        return None
