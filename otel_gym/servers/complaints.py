"""Warnings that are said once for each cause, not once for each call; the counters have the numbers."""

from __future__ import annotations

import logging
from typing import Final

log: Final = logging.getLogger("otel_gym.servers")

MAX_CAUSES: Final = 100


class Complaints:
    """What has been complained of and not been well since."""

    def __init__(self) -> None:
        self._causes: set[str] = set()

    def say(self, cause: str, message: object) -> None:
        """Log a warning, unless this cause was complained of before."""
        if cause not in self._causes and len(self._causes) < MAX_CAUSES:
            self._causes.add(cause)
            log.warning("%s (said once until it is well again)", message)

    def well(self, cause: str) -> None:
        """The cause is gone; should it come back, it is said again."""
        self._causes.discard(cause)
