"""The grammar of rollout ids, and the id that a run body names.

An id is 1 to 200 characters: an ASCII letter or digit first, then letters, digits and `. _ -`. So it is a file name, a URL segment and nothing else; it
cannot climb out of a directory, hide as a dot file, or end as one of the suffixes that the store keeps for itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from otel_gym.errors import InvalidRolloutId

MAX_LENGTH: Final = 200
"""Longest id: a file name of 255 bytes less the longest suffix that the store appends."""

RESERVED_SUFFIXES: Final = (
    ".capture",
    ".capture.jsonl",
    ".capture.incomplete",
    ".stale",
    ".stale.jsonl",
    ".rollout.json",
    ".zst",
)
"""Endings that would make one rollout's file look like another's."""

TASK_INDEX: Final = "_ng_task_index"
ROLLOUT_INDEX: Final = "_ng_rollout_index"
ATTEMPT_INDEX: Final = "_ng_attempt_index"
EXPLICIT_ID: Final = "_ng_rollout_id"

_GRAMMAR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_INDICES = re.compile(r"(?P<task>\d+)-(?P<rollout>\d+)(?:-a(?P<attempt>[1-9]\d*))?", re.ASCII)


@lru_cache(maxsize=8192)
def why_invalid(rollout_id: str) -> str | None:
    """Why `rollout_id` breaks the grammar, in a few words; null where it is valid."""
    if not rollout_id:
        return "is empty"
    if len(rollout_id) > MAX_LENGTH:
        return f"is longer than {MAX_LENGTH} characters"
    if not _GRAMMAR.fullmatch(rollout_id):
        return "must be ASCII letters, digits and . _ - and begin with a letter or digit"
    lowered = rollout_id.lower()
    for suffix in RESERVED_SUFFIXES:
        if lowered.endswith(suffix):
            return f"ends with the reserved suffix {suffix}"
    return None


def is_valid(rollout_id: str) -> bool:
    """Whether `rollout_id` follows the grammar."""
    return why_invalid(rollout_id) is None


def checked(rollout_id: str) -> str:
    """`rollout_id` itself. Raises `InvalidRolloutId` where it breaks the grammar."""
    if not isinstance(rollout_id, str):
        raise InvalidRolloutId(f"Invalid rollout id: {rollout_id!r} must be a string")
    reason = why_invalid(rollout_id)
    if reason is not None:
        shown = rollout_id if len(rollout_id) <= 80 else rollout_id[:77] + "..."
        raise InvalidRolloutId(f"Invalid rollout id: {shown!r} {reason}")
    return rollout_id


def indices(rollout_id: str) -> tuple[int, int, int] | None:
    """(task, rollout, attempt) where the id is `{task}-{rollout}[-a<attempt>]`, else null. The first attempt is 0."""
    match = _INDICES.fullmatch(rollout_id)
    if match is None:
        return None
    return int(match["task"]), int(match["rollout"]), int(match["attempt"] or 0)


def rollout_id_from_run_body(body: Mapping[str, Any] | object) -> str | None:
    """The id of the rollout that a run body describes, or null where it names none.

    An explicit `_ng_rollout_id` (on models: the attribute `capture_rollout_id`) wins; otherwise `{_ng_task_index}-{_ng_rollout_index}`, null if one
    of them is missing. `_ng_attempt_index` above 0 appends `-a<n>`. Raises `InvalidRolloutId` for an id or an index that breaks the grammar.
    """
    explicit = _field(body, EXPLICIT_ID, "capture_rollout_id")
    if explicit is not None:
        base = checked(explicit)
    else:
        task = _field(body, TASK_INDEX, TASK_INDEX.lstrip("_"))
        rollout = _field(body, ROLLOUT_INDEX, ROLLOUT_INDEX.lstrip("_"))
        if task is None or rollout is None:
            return None
        base = f"{task}-{rollout}"
    attempt = _attempt(_field(body, ATTEMPT_INDEX, ATTEMPT_INDEX.lstrip("_")))
    return checked(f"{base}-a{attempt}" if attempt else base)


def _attempt(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # what tables make of whole numbers beside missing ones
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidRolloutId(f"Invalid attempt index: {value!r} must be a whole number")
    try:
        number = int(value)
    except ValueError:
        raise InvalidRolloutId(f"Invalid attempt index: {value!r} must be a whole number") from None
    if number < 0:
        raise InvalidRolloutId(f"Invalid attempt index: {number} is below 0")
    return number


def _field(body: Mapping[str, Any] | object, key: str, attribute: str) -> Any:
    if isinstance(body, Mapping):
        return body.get(key)
    value = getattr(body, attribute, None)
    if value is None:
        extra = getattr(body, "model_extra", None)
        if isinstance(extra, Mapping):
            return extra.get(key)
    return value
