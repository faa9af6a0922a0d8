"""Batches, and getting one across: retries, bisection, parking."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from otel_gym.counters import count
from otel_gym.tracing.encode import SpanEncoder
from otel_gym.tracing.sender import Answer, Sender

_logger = logging.getLogger(__name__)

FIRST_BACKOFF_S: Final = 0.5
LONGEST_BACKOFF_S: Final = 30.0


class Source(NamedTuple):
    """Where a span's record stands, for cursors and parking."""

    file_name: str
    fingerprint: str
    start: int
    end: int
    identity: str
    """`model_call_id`, or the rollout id for a root span."""


@dataclass(slots=True)
class Batch:
    """Encoded spans that go out together."""

    max_spans: int = 512
    max_bytes: int = 3 * 1024 * 1024
    spans: list[bytes] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    size_bytes: int = 0
    opened_at: float = 0.0
    """Monotonic seconds at which its first span was added."""
    is_sealed: bool = False
    """Whether a span did not fit, so that the batch has to go out as it is."""

    def fits(self, span: bytes) -> bool:
        """Whether `span` may join, else the batch is sealed; a span that is too large for any batch may be alone."""
        if self.spans and (
            len(self.spans) >= self.max_spans or self.size_bytes + len(span) + 6 > self.max_bytes
        ):
            self.is_sealed = True
        return not self.is_sealed

    def add(self, span: bytes, source: Source) -> None:
        """Adds an encoded span."""
        if not self.spans:
            self.opened_at = time.monotonic()
        self.spans.append(span)
        self.sources.append(source)
        self.size_bytes += len(span) + 6

    def is_full(self) -> bool:
        """Whether no further span may join."""
        return self.is_sealed or len(self.spans) >= self.max_spans

    def clear(self) -> None:
        """Empties it."""
        self.spans, self.sources, self.size_bytes, self.is_sealed = [], [], 0, False

    def __len__(self) -> int:
        return len(self.spans)


class Delivery:
    """Sends batches of one pipeline until each span is accepted or parked."""

    def __init__(
        self,
        sender: Callable[[], Sender],
        encoder: SpanEncoder,
        *,
        accepted: Callable[[list[Source]], None],
        parked: Callable[[Source, str], None],
        pause: Callable[[float], bool],
    ) -> None:
        """`pause(seconds)` waits between tries and says whether to go on; false gives the batch up for now."""
        self._open_sender = sender
        self._sender: Sender | None = None
        self._encoder = encoder
        self._accepted = accepted
        self._parked = parked
        self._pause = pause
        self._last_reason: str | None = None
        self._last_parked: str | None = None

    def deliver(self, batch: Batch) -> bool:
        """Whether all of `batch` was accepted or parked; false when it was given up for now. What was accepted is told either way."""
        return self._deliver(batch.spans, batch.sources)

    @property
    def last_reason(self) -> str | None:
        """Why the backend could not take the last request, null where it could."""
        return self._last_reason

    def close(self) -> None:
        """Gives up the connection; the next delivery opens another."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def forget(self) -> None:
        """Drops the connection without touching it: after a fork it belongs to the parent."""
        self._sender = None

    def _deliver(self, spans: list[bytes], sources: list[Source]) -> bool:
        answer = self._send(self._encoder.request(spans))
        if answer is None:
            return False
        if answer.kind == "accepted" and not answer.rejected_spans:
            count("export.spans", len(spans))
            self._accepted(sources)
            return True
        if len(spans) == 1:
            count("export.parked")
            self._warn_parked(answer.reason)
            self._parked(sources[0], answer.reason)
            self._accepted(sources)
            return True
        # Sending the good ones of a partly accepted batch again is harmless: a span is always the same bytes.
        middle = len(spans) // 2
        return self._deliver(spans[:middle], sources[:middle]) and self._deliver(
            spans[middle:], sources[middle:]
        )

    def _send(self, body: bytes) -> Answer | None:
        """The first answer that is not `retry`, null when `pause` says to stop."""
        backoff_s = FIRST_BACKOFF_S
        while True:
            if self._sender is None:
                self._sender = self._open_sender()
            answer = self._sender.send(body)
            if answer.kind != "retry":
                self._last_reason = None
                return answer
            self._warn(f"will be sent again: {answer.reason}")
            wait_s = answer.retry_after_s
            if wait_s is None:
                wait_s = backoff_s * random.uniform(0.8, 1.2)
                backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
            if not self._pause(wait_s):
                return None
            count("export.retried")

    def _warn(self, reason: str) -> None:
        """Logs a cause once, until another or a success comes between."""
        if reason != self._last_reason:
            self._last_reason = reason
            _logger.warning("export: %s", reason)

    def _warn_parked(self, reason: str) -> None:
        if reason != self._last_parked:
            self._last_parked = reason
            _logger.warning("export: a span was refused for good and parked: %s", reason)


def parked_entry(source: Source, reason: str) -> dict[str, Any]:
    """The line of the parked file for a span."""
    return {
        "at": time.time(),
        "file": source.file_name,
        "offset_bytes": source.start,
        "length_bytes": source.end - source.start,
        "id": source.identity,
        "reason": reason,
    }
