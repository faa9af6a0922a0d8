"""The attachment: what was captured of a rollout, put into the rollout's result row without its payloads.

    "ng_model_call_capture": {"rollout_id", "metrics", "calls"[, "gaps"]}

`calls` are derived records less `request`, `response`, `request_raw`, `response_raw`: those stay in the rollout's file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from pydantic import ValidationError

from otel_gym.capture.record import ModelCallRecord, build_model_call_record
from otel_gym.capture.store import CaptureStore
from otel_gym.correlation.rollout_id import rollout_id_from_run_body
from otel_gym.counters import count
from otel_gym.errors import OtelGymError
from otel_gym.rollouts import gaps
from otel_gym.rollouts.gaps import Gap, gap
from otel_gym.rollouts.resends import metrics_of

log: Final = logging.getLogger("otel_gym.rollouts")

ATTACHMENT_KEY: Final = "ng_model_call_capture"
PAYLOADS: Final = frozenset(("request", "response", "request_raw", "response_raw"))
"""Fields of a derived record that an attachment leaves out."""

_logged: set[str] = set()


def attach_model_calls(
    row: MutableMapping[str, Any],
    store: CaptureStore,
    rollout_id: str | None = None,
    *,
    settle_timeout_s: float = 0.0,
) -> bool:
    """Put the attachment into `row`, a result row of ours or of NeMo Gym; no other key is touched. Whether there was one to put.

    `rollout_id` null takes it from the row's indices; a row that names no rollout is left alone. Never raises for what it finds in the directory.
    """
    try:
        rollout_id = rollout_id if rollout_id is not None else rollout_id_from_run_body(row)
    except OtelGymError as error:
        _failed(error)
        return False
    if rollout_id is None:
        return False
    row[ATTACHMENT_KEY] = model_call_capture(
        store, rollout_id, settle_timeout_s=settle_timeout_s, agent_calls=calls_by_agent(row)
    )
    return True


def model_call_capture(
    store: CaptureStore,
    rollout_id: str,
    *,
    settle_timeout_s: float = 0.0,
    agent_calls: int | None = None,
) -> dict[str, Any]:
    """The attachment of `rollout_id`, after its calls in flight have settled or `settle_timeout_s` has passed.

    `agent_calls` is how many model calls the agent says it made. Blocks the calling thread; never raises for what it finds in the directory.
    """
    records: list[ModelCallRecord] = []
    found: list[Gap] = []
    try:
        found += _unsettled(store, rollout_id, settle_timeout_s)
        records, invalid = _readable(store, rollout_id)
        if invalid:
            found.append(gap(gaps.RECORDS_UNREADABLE, f"count={invalid}"))
        is_incomplete = store.is_incomplete(rollout_id)
        if is_incomplete:
            found.append(gap(gaps.INCOMPLETE))
        stale = sum(1 for _ in store.iter_stale(rollout_id))
        if stale:
            found.append(gap(gaps.STALE, f"count={stale}"))
        found += _missing(len(records), invalid, agent_calls, is_incomplete=is_incomplete)
        return _attachment(rollout_id, records, found)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a rollout's evidence, its result is kept
        _failed(error)
        found.append(gap(gaps.UNREADABLE, str(error)))
    return _attachment(rollout_id, [], found)


def _attachment(
    rollout_id: str, records: list[ModelCallRecord], found: list[Gap]
) -> dict[str, Any]:
    attachment: dict[str, Any] = {
        "rollout_id": rollout_id,
        "metrics": metrics_of(records),
        "calls": [one.model_dump(mode="json", exclude=set(PAYLOADS)) for one in records],
    }
    if found:
        attachment["gaps"] = found
    return attachment


def calls_by_agent(row: Mapping[str, Any]) -> int | None:
    """How many model calls a result row says were made, null where it does not say.

    `num_model_calls` says it outright; an answer with token usage means at least one.
    """
    number = row.get("num_model_calls")
    if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        return number
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    if isinstance(usage, Mapping) and any(
        isinstance(value, int) and value > 0 for value in usage.values()
    ):
        return 1
    return None


def _readable(store: CaptureStore, rollout_id: str) -> tuple[list[ModelCallRecord], int]:
    lines, invalid = store.read_available(rollout_id)
    records = []
    for number, raw in lines:
        try:
            records.append(build_model_call_record(raw, number))
        except ValidationError:
            invalid += 1
    return records, invalid


def _unsettled(store: CaptureStore, rollout_id: str, timeout_s: float) -> list[Gap]:
    outstanding = store.await_quiescence(rollout_id, timeout_s).pending
    lost = sum(call.lost or not call.alive for call in outstanding)
    found = []
    if len(outstanding) > lost:
        found.append(gap(gaps.PENDING, f"count={len(outstanding) - lost}"))
    if lost:
        found.append(gap(gaps.LOST, f"count={lost}"))
    return found


def _missing(
    captured: int, invalid: int, agent_calls: int | None, *, is_incomplete: bool
) -> list[Gap]:
    # The marker of a rollout without a record says that calls did arrive under its id.
    if captured == 0 and invalid == 0 and not is_incomplete:
        found = [gap(gaps.NO_RECORDS)]
        if agent_calls:
            found.append(gap(gaps.PREFIX_MISSING, f"agent={agent_calls}"))
        return found
    if agent_calls is not None and agent_calls > captured + invalid:
        return [gap(gaps.COUNT_DIFFERS, f"agent={agent_calls} captured={captured}")]
    return []


def _failed(error: Exception) -> None:
    count("attachments.failed")
    cause = type(error).__name__
    if cause not in _logged:
        _logged.add(cause)
        log.warning("captures could not be attached: %s", error)
