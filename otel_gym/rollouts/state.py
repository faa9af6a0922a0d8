"""What earlier runs of a collection have left in its two files, and so what is still to be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_gym.correlation.rollout_id import ATTEMPT_INDEX, rollout_id_from_run_body
from otel_gym.errors import InvalidRolloutId
from otel_gym.rollouts.tasks import (
    FAILURE_TERMINAL,
    IDENTITY,
    TASK_DIGEST,
    PlannedRollout,
    read_rows,
)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One attempt to be made."""

    rollout: PlannedRollout
    attempt: int
    rollout_id: str


@dataclass(slots=True)
class State:
    """Rollouts by key (their id without an attempt)."""

    done: dict[str, str | None] = field(default_factory=dict)
    """Finished, with the digest of the input row that was played; null where the row does not say."""
    attempts: Counter[str] = field(default_factory=Counter)
    """Failed attempts."""
    terminal: set[str] = field(default_factory=set)
    """Failed for good: the agent said that another attempt is useless."""
    problems: list[str] = field(default_factory=list)

    def remaining(
        self, planned: Iterable[PlannedRollout], max_attempts: int
    ) -> tuple[list[Dispatch], int, int]:
        """(what is to be dispatched, how many are done, how many had all their attempts).

        A failed rollout's next attempt has an id of its own; one that left no trace was killed, and is played again under the same id.
        """
        dispatches: list[Dispatch] = []
        done = exhausted = 0
        for one in planned:
            attempt = self.attempts[one.key]
            if one.key in self.done:
                done += 1
            elif attempt >= max_attempts or one.key in self.terminal:
                exhausted += 1
            else:
                rollout_id = rollout_id_from_run_body(one.body(attempt))
                assert rollout_id is not None
                dispatches.append(Dispatch(one, attempt, rollout_id))
        return dispatches, done, exhausted


def changed_tasks(state: State, planned: Iterable[PlannedRollout], output: Path) -> list[str]:
    """One line for each finished rollout whose input row is no longer the one that was played."""
    return [
        f"rollout {one.key}: its row of the input is not the one that was played; its result is kept, "
        f"take it out of {output} to play it again"
        for one in planned
        if state.done.get(one.key) not in (None, one.digest)
    ]


def read_state(output: Path, failures: Path) -> State:
    """The state that the two files hold; rows that cannot be used are named and left alone. Raises `UsageProblem`."""
    state = State()
    for number, row in read_rows(output) if output.exists() else ():
        key = _key(output, number, row, state.problems)
        if key is not None:
            digest = row.get(TASK_DIGEST)
            state.done[key] = digest if isinstance(digest, str) else None
    for number, row in read_rows(failures) if failures.exists() else ():
        key = _key(failures, number, row, state.problems)
        if key is None or _never_began(row):
            continue
        state.attempts[key] += 1
        if row.get(FAILURE_TERMINAL) is True:
            state.terminal.add(key)
    return state


def _key(path: Path, number: int, row: Any, problems: list[str]) -> str | None:
    if not isinstance(row, Mapping):
        problems.append(f"{path}: row {number}: is damaged; its rollout is done again")
        return None
    try:
        key = rollout_id_from_run_body(
            {name: row.get(name) for name in IDENTITY if name != ATTEMPT_INDEX}
        )
    except InvalidRolloutId as error:
        problems.append(f"{path}: row {number}: {error}; ignored")
        return None
    if key is None:
        problems.append(f"{path}: row {number}: has no indices and names no rollout; ignored")
    return key


def _never_began(row: Mapping[str, Any]) -> bool:
    error = row.get("error")
    return isinstance(error, Mapping) and error.get("code") == "agent_unreachable"
