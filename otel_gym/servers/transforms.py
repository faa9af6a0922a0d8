"""What may be done to an answer's body on its way back: nothing, or a chain of small transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from otel_gym.capture.current import CurrentCall
from otel_gym.dialects.stream_usage import UsageChunkFilter


class BodyTransform(Protocol):
    """Changes an answer's body: `feed` each part, then `finish` once; both return bytes to send, perhaps none."""

    def feed(self, part: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class Chain:
    """Several transforms, each fed with what the one before gives."""

    def __init__(self, transforms: Sequence[BodyTransform]) -> None:
        self._transforms = transforms

    def feed(self, part: bytes) -> bytes:
        for transform in self._transforms:
            part = transform.feed(part) if part else b""
        return part

    def finish(self) -> bytes:
        rest = b""
        for transform in self._transforms:
            rest = (transform.feed(rest) if rest else b"") + transform.finish()
        return rest


class UsageKept:
    """Keeps the usage chunk that only we asked for from the caller, and notes it for the record."""

    def __init__(self, call: CurrentCall | None) -> None:
        self._filter = UsageChunkFilter()
        self._call = call
        self._note()

    def feed(self, part: bytes) -> bytes:
        before = len(self._filter.dropped)
        kept = self._filter.feed(part)
        if len(self._filter.dropped) != before:
            self._note()
        return kept

    def finish(self) -> bytes:
        rest = self._filter.finish()
        self._note()
        return rest

    def _note(self) -> None:
        if self._call is not None:
            self._call.notes.update(self._filter.notes())
