"""Spans that go out together, and where their records stand."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple


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
        self.keep([], [])

    def keep(self, spans: list[bytes], sources: list[Source]) -> None:
        """Holds only these of its spans from now on."""
        self.spans, self.sources, self.is_sealed = spans, sources, False
        self.size_bytes = sum(map(len, spans)) + 6 * len(spans)

    def __len__(self) -> int:
        return len(self.spans)
