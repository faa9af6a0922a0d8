"""What a finished attempt leaves: its result or failure row with the attachment, and the rollout record that its root span is made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_gym.correlation.rollout_id import ATTEMPT_INDEX, ROLLOUT_INDEX, TASK_INDEX
from otel_gym.rollouts.dispatch import RolloutFailure
from otel_gym.rollouts.state import Dispatch
from otel_gym.rollouts.tasks import FAILURE_CLASS, IDENTITY
from otel_gym.tracing.rollout import RolloutRecord, RolloutTotals

_CLASSES: Final = {
    "agent_unreachable": "agent_request_failed",
    "agent_connection_lost": "agent_request_failed",
    "agent_timeout": "agent_request_failed",
    "agent_status": "agent_run_error",
    "agent_response_too_large": "agent_run_error",
    "agent_response_not_json": "agent_run_error",
}
"""NeMo Gym's class of each of our codes."""


def result_row(body: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The agent's result under the identity of the rollout that was asked for."""
    row = {key: value for key, value in result.items() if key not in IDENTITY}
    return {**_identity(body), **row}


def failure_of(row: Mapping[str, Any]) -> RolloutFailure | None:
    """The failure that a result says it is, by NeMo Gym's `_ng_failure_class`; null for a result that is one."""
    failure_class = row.get(FAILURE_CLASS)
    if not isinstance(failure_class, str) or not failure_class:
        return None
    said = row.get("error")
    shown = said if isinstance(said, str) and said else failure_class
    return RolloutFailure(_text(failure_class), _text(shown))


def failure_row(
    body: Mapping[str, Any],
    rollout_id: str,
    failure: RolloutFailure,
    result: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The row of the failures file; of a `result` that says it is a failure, everything is kept."""
    error = {"code": failure.code, "message": str(failure), "status": failure.status}
    own = {FAILURE_CLASS: _CLASSES.get(failure.code, failure.code)}
    return {**_identity(body), "rollout_id": rollout_id, "error": error, **own, **(result or {})}


def rollout_record(
    dispatch: Dispatch,
    row: Mapping[str, Any],
    attachment: Mapping[str, Any],
    *,
    started_at: float,
    completed_at: float,
    agent_name: str | None,
    failure: RolloutFailure | None,
) -> RolloutRecord:
    """The rollout record of an attempt that ended."""
    rollout = dispatch.rollout
    previous = None
    if dispatch.attempt:
        before = dispatch.attempt - 1
        previous = rollout.key if before == 0 else f"{rollout.key}-a{before}"
    return RolloutRecord(
        rollout_id=dispatch.rollout_id,
        started_at=started_at,
        completed_at=completed_at,
        agent=agent_of(row) or agent_of(rollout.row) or agent_name,
        model_ref=_model_ref(attachment),
        task_index=_index(rollout.task_index),
        rollout_index=_index(rollout.rollout_index),
        attempt_index=dispatch.attempt,
        previous_rollout_id=previous,
        reward=_number(row.get("reward")) if failure is None else None,
        error=str(failure) if failure is not None else None,
        error_type=failure.code if failure is not None else None,
        totals=_totals(attachment["metrics"]),
    )


def record_of_row(row: Mapping[str, Any], attachment: Mapping[str, Any]) -> RolloutRecord | None:
    """The rollout record of a result row that somebody else collected; it lasts from its first call to its last. Null without a timed call."""
    starts = [one["started_at"] for one in attachment["calls"] if one["started_at"] is not None]
    ends = [one["completed_at"] for one in attachment["calls"] if one["completed_at"] is not None]
    if not starts or not ends:
        return None
    failure = failure_of(row)
    return RolloutRecord(
        rollout_id=attachment["rollout_id"],
        started_at=min(starts),
        completed_at=max(ends),
        agent=agent_of(row),
        model_ref=_model_ref(attachment),
        task_index=_index(row.get(TASK_INDEX)),
        rollout_index=_index(row.get(ROLLOUT_INDEX)),
        attempt_index=_index(row.get(ATTEMPT_INDEX)) or 0,
        reward=_number(row.get("reward")) if failure is None else None,
        error=str(failure) if failure is not None else None,
        error_type=failure.code if failure is not None else None,
        totals=_totals(attachment["metrics"]),
    )


def agent_of(row: Mapping[str, Any]) -> str | None:
    """The agent that a row names in `agent_ref`."""
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, Mapping) else None
    return _text(name) if isinstance(name, str) else None


def _identity(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: body[key] for key in IDENTITY if key in body}


def _totals(metrics: Mapping[str, Any]) -> RolloutTotals:
    return RolloutTotals(
        model_calls=metrics["with_resends"]["num_calls"],
        failed_model_calls=metrics["num_errors"] + metrics["num_resends"],
        tool_calls=metrics["num_tool_calls"],
        input_tokens=metrics["tokens_in"],
        output_tokens=metrics["tokens_out"],
    )


def _model_ref(attachment: Mapping[str, Any]) -> dict[str, str] | None:
    """The model server of the calls, where all have the same."""
    references = [call["model_ref"] for call in attachment["calls"]]
    first = references[0] if references else None
    if not first or any(one != first for one in references):
        return None
    return {key: value for key, value in first.items() if isinstance(value, str)}


def _text(value: str) -> str:
    """`value` with whatever is no Unicode text replaced: half a surrogate pair can't be written."""
    return value.encode("utf-8", "replace").decode()


def _index(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and value >= 0 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)
