"""What a finished attempt leaves: its result or failure row with the attachment, and the rollout record that its root span is made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_gym.rollouts.dispatch import RolloutFailure
from otel_gym.rollouts.state import Dispatch
from otel_gym.rollouts.tasks import IDENTITY
from otel_gym.tracing.rollout import RolloutRecord, RolloutTotals


def result_row(body: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The agent's result under the identity of the rollout that was asked for."""
    row = {key: value for key, value in result.items() if key not in IDENTITY}
    return {**_identity(body), **row}


def failure_row(
    body: Mapping[str, Any], rollout_id: str, failure: RolloutFailure
) -> dict[str, Any]:
    """The row of the failures file."""
    error = {"code": failure.code, "message": str(failure), "status": failure.status}
    return {**_identity(body), "rollout_id": rollout_id, "error": error}


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


def agent_of(row: Mapping[str, Any]) -> str | None:
    """The agent that a row names in `agent_ref`."""
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, Mapping) else None
    return name if isinstance(name, str) else None


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
