"""The two files of a collection: results, and failed attempts."""

from __future__ import annotations

from otel_gym.rollouts.journal import Journal
from otel_gym.rollouts.options import CollectOptions


class ResultFiles:
    """The two journals of a collection; the failures file is made by the first failure."""

    def __init__(self, options: CollectOptions) -> None:
        self._options = options
        self._failures: Journal | None = None

    def __enter__(self) -> ResultFiles:
        is_fresh = not self._options.resume
        self.output = Journal(self._options.output, truncate=is_fresh)
        if is_fresh:
            self._options.failures.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.output.close()
        if self._failures is not None:
            self._failures.close()

    @property
    def failures(self) -> Journal:
        """The journal of failed attempts. Raises `UsageProblem` where it cannot be opened."""
        if self._failures is None:
            self._failures = Journal(self._options.failures)
        return self._failures
