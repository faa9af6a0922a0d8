"""The two files of a collection: results, and failed attempts."""

from __future__ import annotations

from pathlib import Path

from otel_gym.errors import UsageProblem
from otel_gym.rollouts.journal import Journal
from otel_gym.rollouts.options import CollectOptions


def refuse_overwriting(options: CollectOptions, tasks: object) -> None:
    """Raises `UsageProblem` where a file would be written that is the input `tasks`, or that holds results and is neither gone on with nor given up."""
    for path in (options.output, options.failures):
        if not path.exists():
            continue
        if isinstance(tasks, Path) and path.samefile(tasks):
            raise UsageProblem(f"{path}: is the input; name another output")
        if path.stat().st_size and not (options.resume or options.overwrite):
            raise UsageProblem(
                f"{path}: exists; go on with --resume, start anew with --overwrite, or name another output"
            )


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
