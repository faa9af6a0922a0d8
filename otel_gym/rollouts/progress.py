"""How far a collection has come."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CollectProgress:
    """A moment of a collection; counts are of this run of it."""

    total: int
    """Rollouts to be dispatched by this run."""
    completed: int
    failed: int
    in_flight: int
    rate_per_s: float | None
    """Rollouts ended a second, null before the first."""
    eta_s: float | None
    """Seconds to the end at that rate; null before the first."""
    draining: bool
    last: str | None
    """Rollout id that ended last."""


@dataclass(slots=True)
class Tally:
    """The counts behind `CollectProgress`."""

    total: int
    completed: int = 0
    failed: int = 0
    in_flight: int = 0
    draining: bool = False
    last: str | None = None
    _began: float = field(default_factory=time.monotonic)

    def moment(self) -> CollectProgress:
        """The counts as they stand now."""
        ended = self.completed + self.failed
        elapsed_s = time.monotonic() - self._began
        rate = ended / elapsed_s if ended and elapsed_s > 0 else None
        left = self.in_flight if self.draining else self.total - ended
        return CollectProgress(
            total=self.total,
            completed=self.completed,
            failed=self.failed,
            in_flight=self.in_flight,
            rate_per_s=rate,
            eta_s=left / rate if rate else None,
            draining=self.draining,
            last=self.last,
        )
