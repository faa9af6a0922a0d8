"""The input: rows of tasks, and the rollouts that they ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from otel_gym.correlation.rollout_id import (
    ATTEMPT_INDEX,
    EXPLICIT_ID,
    ROLLOUT_INDEX,
    TASK_INDEX,
    rollout_id_from_run_body,
)
from otel_gym.dialects.jsontext import loads_noting
from otel_gym.errors import InvalidRolloutId, UsageProblem
from otel_gym.servers.answers import encode_json

IDENTITY: Final = (TASK_INDEX, ROLLOUT_INDEX, ATTEMPT_INDEX, EXPLICIT_ID)
"""Keys that say which rollout a row is; copied from the input onto the result."""

TASK_DIGEST: Final = "otel_gym_task_digest"
"""Key of a result or failure row: digest of the input row that was played."""

FAILURE_CLASS: Final = "_ng_failure_class"
FAILURE_TERMINAL: Final = "_ng_failure_terminal"
NO_PERSIST: Final = "_ng_no_persist"
"""What NeMo Gym's agents put into a result that is none: the class of the failure, that it is not to be tried again, that it is not to be kept at all."""

_ATTEMPT = re.compile(r"(?P<base>.+)-a[1-9]\d*", re.ASCII)


@dataclass(frozen=True, slots=True)
class PlannedRollout:
    """One repeat of one task."""

    key: str
    """Its rollout id without an attempt."""
    task_index: Any
    rollout_index: Any
    row: Mapping[str, Any]
    """The input row as it stood; shared by all repeats of a task."""
    explicit_id: str | None = None
    digest: str = ""
    """Of the input row, its identity left out."""

    def body(self, attempt: int) -> dict[str, Any]:
        """The run body of an attempt; the first is 0."""
        body = {**self.row, TASK_INDEX: self.task_index, ROLLOUT_INDEX: self.rollout_index}
        body.pop(ATTEMPT_INDEX, None)
        if self.explicit_id is not None:
            body[EXPLICIT_ID] = self.explicit_id
        if attempt:
            body[ATTEMPT_INDEX] = attempt
        return body


def read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """(0-based number of the non-blank line, its JSON value, or the `ValueError` that says why it has none) of a JSONL file. Raises `UsageProblem`."""
    try:
        with path.open("rb") as file:
            number = 0
            for line in file:
                if not line.strip():
                    continue
                try:
                    yield number, loads_noting(line)[0]
                except ValueError as error:
                    yield number, error
                number += 1
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read: {error.strerror}") from None


def plan(
    rows: Iterable[tuple[int, Any]],
    *,
    num_repeats: int = 1,
    limit: int | None = None,
    source: str = "input",
) -> tuple[list[PlannedRollout], list[str]]:
    """The rollouts that `rows` ask for, and one line for each row that can't be used; the others go on.

    A row without a task index gets the number of its line, and each repeat the next rollout index. A row that has its own rollout index is that one rollout
    and is not repeated; an explicit id is repeated as `<id>-<repeat>`. `limit` is the number of rows taken.
    """
    planned: dict[str, PlannedRollout] = {}
    problems: list[str] = []
    taken = 0
    for number, row in rows:
        if limit is not None and taken >= limit:
            break
        taken += 1
        where = f"{source}: row {number}"
        if isinstance(row, Exception):
            problems.append(f"{where}: is not JSON ({row}); left out")
            continue
        if not isinstance(row, Mapping):
            problems.append(f"{where}: must be a JSON object, not a {type(row).__name__}; left out")
            continue
        if TASK_INDEX not in row and ROLLOUT_INDEX in row:
            problems.append(
                f"{where}: has {ROLLOUT_INDEX} but no {TASK_INDEX}; it is task {number}"
            )
        try:
            for one in _repeats(row, number, num_repeats):
                if one.key in planned:
                    problems.append(
                        f"{where}: rollout id {one.key} is already that of another row; left out"
                    )
                else:
                    planned[one.key] = one
        except InvalidRolloutId as error:
            problems.append(f"{where}: {error}; left out")
    for key in list(planned):
        match = _ATTEMPT.fullmatch(key)
        if match is not None and match["base"] in planned:
            problems.append(
                f"{source}: rollout id {key} could be an attempt of {match['base']}; left out"
            )
            del planned[key]
    return list(planned.values()), problems


def digest_of(row: Mapping[str, Any]) -> str:
    """What tells one task from another, whatever its number and the order of its keys."""
    task = {key: row[key] for key in sorted(row) if key not in IDENTITY}
    return blake2b(encode_json(task), digest_size=8).hexdigest()


def _repeats(row: Mapping[str, Any], number: int, num_repeats: int) -> Iterator[PlannedRollout]:
    explicit = row.get(EXPLICIT_ID)
    task = number if row.get(TASK_INDEX) is None else row[TASK_INDEX]
    own = row.get(ROLLOUT_INDEX)
    digest = digest_of(row)
    for repeat in range(num_repeats) if own is None else (own,):
        name = explicit
        if isinstance(explicit, str) and own is None and num_repeats > 1:
            name = f"{explicit}-{repeat}"
        key = rollout_id_from_run_body({TASK_INDEX: task, ROLLOUT_INDEX: repeat, EXPLICIT_ID: name})
        assert key is not None
        yield PlannedRollout(key, task, repeat, row, name, digest)
