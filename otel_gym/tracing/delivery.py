"""Getting a batch across: retries, bisection, parking, and finding out whether the backend or a span is at fault."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from otel_gym.counters import count
from otel_gym.tracing.answers import Answer
from otel_gym.tracing.batch import Batch, Source
from otel_gym.tracing.encode import SpanEncoder
from otel_gym.tracing.sender import Sender

_logger = logging.getLogger(__name__)

FIRST_BACKOFF_S: Final = 0.5
LONGEST_BACKOFF_S: Final = 30.0
PATIENCE: Final = 6
"""How often a request may fail in a row, for a reason that may lie in it, before it is looked into."""
SINGLE_PATIENCE: Final = 3
"""The same for a single span of a request that was looked into."""
MOST_PROBES: Final = 8
"""Spans of a request that are tried alone where the backend has never accepted any."""

Outcome = Literal["delivered", "stopped", "unclear"]
"""What became of a batch: all accepted or parked; given up for now; or nobody can tell whether it or the backend is at fault."""
_Fault = Literal["backend", "request", "unknown"]


@dataclass(frozen=True, slots=True)
class _Part:
    """Some spans of a batch that go out in one request."""

    spans: list[bytes]
    sources: list[Source]
    is_suspect: bool = False
    """Whether it comes from a request that failed while the backend was well."""

    @property
    def patience(self) -> int:
        """How often it may fail."""
        if not self.is_suspect:
            return PATIENCE
        return SINGLE_PATIENCE if len(self.spans) == 1 else 1

    def halves(self, *, is_suspect: bool) -> tuple[_Part, _Part]:
        """Both halves; what is suspect once stays so."""
        middle = len(self.spans) // 2
        is_suspect = is_suspect or self.is_suspect
        return (
            _Part(self.spans[:middle], self.sources[:middle], is_suspect),
            _Part(self.spans[middle:], self.sources[middle:], is_suspect),
        )


class Delivery:
    """Sends batches until each span is accepted or parked. Used by one thread.

    What a backend refuses is halved until the refused span is alone. What merely fails, again and again, may be the backend's fault or a span's: so a
    span that was accepted before is sent once more. If that is accepted, the backend is well, and the request is halved in the same way.
    """

    def __init__(
        self,
        sender: Callable[[], Sender],
        encoder: SpanEncoder,
        *,
        accepted: Callable[[list[Source]], None],
        parked: Callable[[Source, str, bool], None],
        pause: Callable[[float], bool],
    ) -> None:
        """`parked(source, reason, is_final)` is told of each span that is put aside; `is_final` where the backend said that it will never take it.

        `pause(seconds)` waits between tries and says whether to go on; false gives the batch up for now.
        """
        self._open_sender = sender
        self._sender: Sender | None = None
        self._encoder = encoder
        self._accepted = accepted
        self._parked = parked
        self._pause = pause
        self._backoff_s = FIRST_BACKOFF_S
        self._control: bytes | None = None
        self._last_reason: str | None = None
        self._last_parked: str | None = None

    def deliver(self, batch: Batch) -> Outcome:
        """Empties `batch`, or leaves in it what is still to be delivered. What was accepted is told either way."""
        parts = [_Part(batch.spans, batch.sources)]
        outcome: Outcome = "delivered"
        while parts:
            part = parts.pop()
            answer = self._answer_to(part)
            if not isinstance(answer, Answer):
                parts.append(part)
                outcome = answer
                break
            if answer.kind == "accepted" and not answer.rejected_spans:
                count("export.spans", len(part.spans))
                self._control = min(part.spans, key=len)
                self._accepted(part.sources)
            elif len(part.spans) == 1:
                self._park(part.sources[0], answer)
            else:
                # Sending the good ones of a partly accepted batch again is harmless: a span is always the same bytes.
                parts.extend(reversed(part.halves(is_suspect=answer.kind == "failed")))
        left = parts[::-1]
        batch.keep(
            [span for part in left for span in part.spans],
            [source for part in left for source in part.sources],
        )
        return outcome

    @property
    def last_reason(self) -> str | None:
        """Why the backend could not take the last request, null where it could."""
        return self._last_reason

    def close(self) -> None:
        """Gives up the connection; the next delivery opens another."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _answer_to(self, part: _Part) -> Answer | Literal["stopped", "unclear"]:
        """The verdict on a part: accepted, refused, or failed, which then is its own fault."""
        body = self._encoder.request(part.spans)
        while True:
            answer = self._send(body, part.patience)
            if answer is None or answer.kind != "failed":
                return answer or "stopped"
            if part.is_suspect and len(part.spans) > 1:
                return answer
            fault = self._fault(part)
            if fault == "request":
                return answer
            if not self._wait(None):
                return "stopped"
            if fault == "unknown":
                return "unclear"

    def _send(self, body: bytes, patience: int) -> Answer | None:
        """The first answer that is not `retry`, nor one of fewer than `patience` failures; null when `pause` says to stop."""
        failures = 0
        while True:
            answer = self._request(body)
            if answer.kind in ("accepted", "refused"):
                self._last_reason = None
                self._backoff_s = FIRST_BACKOFF_S
                return answer
            self._warn(answer.reason)
            failures += answer.kind == "failed"
            if failures >= patience:
                return answer
            if not self._wait(answer.retry_after_s):
                return None
            count("export.retried")

    def _fault(self, part: _Part) -> _Fault:
        """Who is to blame for a failure: one span that is known to be good, or else a few of its own spans, are sent alone."""
        if self._control is not None:
            return "request" if self._is_taken(self._control) else "backend"
        if len(part.spans) > 1:
            step = max(1, len(part.spans) // MOST_PROBES)
            for span in part.spans[::step][:MOST_PROBES]:
                if self._is_taken(span):
                    self._control = span
                    return "request"
        return "unknown"

    def _is_taken(self, span: bytes) -> bool:
        answer = self._request(self._encoder.request([span]))
        return answer.kind == "accepted" and not answer.rejected_spans

    def _request(self, body: bytes) -> Answer:
        if self._sender is None:
            self._sender = self._open_sender()
        return self._sender.send(body)

    def _wait(self, asked_s: float | None) -> bool:
        """Waits as long as the backend asked, or longer each time; whether to go on."""
        if asked_s is not None:
            return self._pause(max(asked_s, FIRST_BACKOFF_S) * random.uniform(1.0, 1.2))
        wait_s = self._backoff_s * random.uniform(0.8, 1.2)
        self._backoff_s = min(self._backoff_s * 2, LONGEST_BACKOFF_S)
        return self._pause(wait_s)

    def _park(self, source: Source, answer: Answer) -> None:
        count("export.parked")
        is_final = answer.kind != "failed"
        if answer.reason != self._last_parked:
            self._last_parked = answer.reason
            _logger.warning(
                "export: a span was put aside, since %s: %s",
                "the backend refuses it"
                if is_final
                else "it fails while others are taken; it is tried again at the next start",
                answer.reason,
            )
        self._parked(source, answer.reason, is_final)

    def _warn(self, reason: str) -> None:
        """Logs a cause once, until another or a success comes between."""
        if reason != self._last_reason:
            self._last_reason = reason
            _logger.warning("export: will be sent again: %s", reason)


def parked_entry(source: Source, reason: str, is_final: bool = True) -> dict[str, Any]:
    """The line of the parked file for a span."""
    return {
        "at": time.time(),
        "file": source.file_name,
        "offset_bytes": source.start,
        "length_bytes": source.end - source.start,
        "id": source.identity,
        "reason": reason,
        "final": is_final,
    }
