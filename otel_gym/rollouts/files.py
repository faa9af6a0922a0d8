"""The two files of a collection: results, and failed attempts."""

from __future__ import annotations

from otel_gym.rollouts.journal import Journal
from otel_gym.rollouts.options import CollectOptions


class ResultFiles:
    """The two journals of a collection, held against any other collection; the failures file is made by the first failure."""

    def __init__(self, options: CollectOptions) -> None:
        self._options = options
        self._failures: Journal | None = None

    def __enter__(self) -> ResultFiles:
        self.output = Journal(self._options.output)
        return self

    def clear(self) -> None:
        """Begin anew. Raises `UsageProblem`."""
        self.output.clear()
        self._options.failures.unlink(missing_ok=True)

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
