"""Calls that a later call certainly repeats: they are records of their own, and count once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_gym.capture.metrics import SUMS, aggregate_model_call_records
from otel_gym.capture.record import ModelCallRecord


def superseded_calls(records: Sequence[ModelCallRecord]) -> set[int]:
    """Positions in `records` of the failed calls that a later one repeats.

    A record's `resend.of` names the call; where it names none (the failure was seen by another process, or by none), it is the latest failed call of the
    same dialect with an equal request that had ended before.
    """
    by_id = {one.model_call_id: position for position, one in enumerate(records)}
    superseded: set[int] = set()
    order = sorted(range(len(records)), key=lambda position: records[position].started_at or 0.0)
    for position in order:
        resend = records[position].resend
        if not resend:
            continue
        of = resend.get("of")
        earlier = by_id.get(of) if isinstance(of, str) else None
        if earlier is None:
            earlier = _predecessor(records, position, superseded)
        if earlier is not None and earlier != position:
            superseded.add(earlier)
    return superseded


def metrics_of(records: Sequence[ModelCallRecord]) -> dict[str, Any]:
    """Sums over the calls, each repeated one counted once (`aggregate_model_call_records` says which sums), and both figures:

    `num_resends`: failed calls left out because a later one repeats them; `with_resends`: `num_calls` and the reference's sums over every record.
    """
    superseded = superseded_calls(records)
    counted = [one for position, one in enumerate(records) if position not in superseded]
    metrics = aggregate_model_call_records(counted)
    everything = aggregate_model_call_records(records) if superseded else metrics
    metrics["num_resends"] = len(superseded)
    metrics["with_resends"] = {name: everything[name] for name in ("num_calls", *SUMS)}
    return metrics


def _predecessor(
    records: Sequence[ModelCallRecord], position: int, superseded: set[int]
) -> int | None:
    call = records[position]
    found: int | None = None
    for other, one in enumerate(records):
        if other == position or other in superseded or one.error_category is None:
            continue
        if one.dialect != call.dialect or one.request is None or one.request != call.request:
            continue
        if not _ended_before(one, call):
            continue
        if found is None or (one.completed_at or 0) > (records[found].completed_at or 0):
            found = other
    return found


def _ended_before(one: ModelCallRecord, other: ModelCallRecord) -> bool:
    return (
        one.completed_at is not None
        and other.started_at is not None
        and one.completed_at <= other.started_at
    )
