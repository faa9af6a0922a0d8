"""One finished call on its way to disk, and the calls of one rollout that wait together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_gym.capture.claims import Claim
from otel_gym.capture.facts import ExchangeFacts
from otel_gym.capture.written import Written


@dataclass(slots=True, eq=False, weakref_slot=True)
class Job:
    """A call whose record is to be made and written."""

    facts: ExchangeFacts | None
    """Null once the line is made."""
    claim: Claim
    size_bytes: int
    """What it counts for in the queue's bound."""
    admitted: bool
    """Whether the queue had room for it; one that was not admitted is given up when its waiting ends."""
    future: asyncio.Future[Written | None] | None
    """What the exchange waits for; null where nobody does."""
    loop: asyncio.AbstractEventLoop | None
    answered: bool = False
    """Whether its exchange was told; set on the event loop."""
    released: bool = False
    """Whether the response was released without the record."""
    dropped: bool = False
    """Whether it was given up."""
    raw: Mapping[str, Any] | None = None
    line: bytes = b""
    written: Written | None = None
    """Where the record stands, once it is durable."""


@dataclass(slots=True, eq=False)
class Lane:
    """The waiting calls of one rollout. At most one flusher works on a lane."""

    rollout_id: str
    jobs: deque[Job] = field(default_factory=deque)
    failures: int = 0
    """Attempts in a row that failed."""
    retry_at: float = 0.0
    """Monotonic time before which it is left alone, unless a new call arrives."""
    queued: bool = False
    """Whether it is in the ready queue or being worked on."""
