"""How to collect, and how a collection stands after a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from otel_gym.rollouts.dispatch import MAX_RESPONSE_BYTES


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """How to collect."""

    agent_url: str
    output: Path
    num_repeats: int = 1
    """Rollouts of each task."""
    concurrency: int = 16
    """Rollouts in flight at once."""
    limit: int | None = None
    """Tasks taken from the input; null takes all."""
    resume: bool = False
    overwrite: bool = False
    """Start anew over an output that exists; without it and without `resume` that is refused."""
    max_attempts: int = 3
    """Failed attempts of a rollout, over all runs, after which it is left alone."""
    timeout_s: float | None = None
    """Longest silence of the agent in one rollout, in seconds; null waits."""
    settle_timeout_s: float = 10.0
    """Longest wait for a finished rollout's calls in flight, in seconds."""
    max_response_bytes: int = MAX_RESPONSE_BYTES
    agent_name: str | None = None
    """Name of an agent that does not say its own."""

    @property
    def failures(self) -> Path:
        """The failures file, named as NeMo Gym names it: `rollouts.jsonl` has `rollouts_failures.jsonl` beside it."""
        return self.output.with_name(f"{self.output.stem}_failures.jsonl")


@dataclass(frozen=True, slots=True)
class Collected:
    """How a collection stands after a run."""

    planned: int
    """Rollouts that the input asks for."""
    done_before: int
    """Of those, finished by earlier runs."""
    exhausted: int
    """Of those, left alone: they had `max_attempts` failed attempts, or a failure that the agent called terminal."""
    completed: int
    """Finished by this run."""
    failed: int
    """Attempts of this run that failed."""
    left: int
    """Never ended: drained, killed at the agent, or the output could not be written."""
    input_problems: int
    """Rows of the input that could not be used."""
    output: Path
    failures: Path

    @property
    def whole(self) -> bool:
        """Whether every rollout that the input asks for is in the output, and every row of it was usable."""
        return not self.input_problems and self.planned == self.done_before + self.completed
