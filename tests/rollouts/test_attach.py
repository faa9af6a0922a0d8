"""The attachment: its shape, its gaps, and that nothing it finds makes it raise."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym.capture.store import CaptureStore, read_model_call_records
from otel_gym.counters import counted
from otel_gym.rollouts import ATTACHMENT_KEY, attach_model_calls, model_call_capture
from otel_gym.rollouts.attach import PAYLOADS

ROLLOUT = "3-1"
ROW = {"_ng_task_index": 3, "_ng_rollout_index": 1, "reward": 1.0}


def raw_call(start: float = 1.0, **more: Any) -> dict[str, Any]:
    """A raw record with usage."""
    return {
        "model_call_id": uuid.uuid4().hex,
        "dialect": "chat",
        "model_ref": {"type": "responses_api_models", "name": "policy"},
        "started_at": start,
        "completed_at": start + 0.5,
        "latency_ms": 500.0,
        "latency_ttft_ms": 400.0,
        "status_code": 200,
        "error_category": None,
        "request": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
        "response": {
            "id": "c",
            "model": "m",
            "choices": [{"index": 0, "message": {"content": "yo"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
        },
        **more,
    }


@pytest.fixture
def store(tmp_path: Path) -> CaptureStore:
    """An empty capture directory."""
    return CaptureStore(tmp_path / "captures")


def codes(attachment: dict[str, Any]) -> dict[str, str | None]:
    """Gap codes with their details."""
    return {one["code"]: one.get("detail") for one in attachment.get("gaps", [])}


def test_shape(store: CaptureStore) -> None:
    """A whole rollout's attachment is id, metrics and calls without payloads, equal to what the file holds; no gaps key."""
    for start in (1.0, 2.0):
        store.record(ROLLOUT, raw_call(start))
    row = dict(ROW)
    assert attach_model_calls(row, store)
    attachment = row.pop(ATTACHMENT_KEY)
    assert row == ROW
    assert list(attachment) == ["rollout_id", "metrics", "calls"]
    assert attachment["rollout_id"] == ROLLOUT
    expected = [
        one.model_dump(mode="json", exclude=set(PAYLOADS))
        for one in read_model_call_records(store, ROLLOUT)
    ]
    assert attachment["calls"] == expected
    assert not PAYLOADS & set(attachment["calls"][0])
    metrics = attachment["metrics"]
    reference = {
        "tokens_in": 14,
        "tokens_out": 4,
        "tokens_reasoning": None,
        "tokens_total": 18,
        "cached_tokens": None,
        "latency_total_ms": 1000.0,
        "num_calls": 2,
    }
    assert {key: metrics[key] for key in reference} == reference
    assert metrics["num_resends"] == 0
    assert metrics["with_resends"] == reference
    assert orjson.loads(orjson.dumps(attachment)) == attachment


def test_nothing_captured(store: CaptureStore) -> None:
    """A rollout without a file is a loud gap, and louder where the agent says that it made calls."""
    attachment = model_call_capture(store, ROLLOUT)
    assert codes(attachment) == {"model_call_capture_no_records": None}
    assert attachment["metrics"]["num_calls"] == 0
    assert attachment["metrics"]["tokens_in"] is None
    row = {**ROW, "num_model_calls": 4}
    attach_model_calls(row, store)
    assert codes(row[ATTACHMENT_KEY])["model_call_prefix_missing"] == "agent=4"
    answered = {**ROW, "response": {"usage": {"total_tokens": 12}}}
    attach_model_calls(answered, store)
    assert "model_call_prefix_missing" in codes(answered[ATTACHMENT_KEY])


def test_fewer_captured_than_made(store: CaptureStore) -> None:
    """An agent that made more calls than arrived under its id is a gap with both figures; more records than it counts are none."""
    store.record(ROLLOUT, raw_call())
    for made, expected in (
        (3, {"model_call_count_differs": "agent=3 captured=1"}),
        (1, {}),
        (0, {}),
    ):
        row = {**ROW, "num_model_calls": made}
        attach_model_calls(row, store)
        assert codes(row[ATTACHMENT_KEY]) == expected


def test_damaged_lines_and_marker(store: CaptureStore) -> None:
    """Damaged lines are counted, their neighbours attached with their own line numbers, and the marker is told."""
    store.record(ROLLOUT, raw_call())
    with store.path_for(ROLLOUT).open("ab") as file:
        file.write(b'{"torn\n' + orjson.dumps(raw_call(dialect=3)) + b"\n")
    store.record(ROLLOUT, raw_call(5.0))
    store.mark_incomplete(ROLLOUT)
    attachment = model_call_capture(store, ROLLOUT)
    assert codes(attachment) == {
        "model_call_capture_records_unreadable": "count=2",
        "model_call_capture_incomplete": None,
    }
    assert [call["call_index"] for call in attachment["calls"]] == [0, 3]


def test_marker_without_records(store: CaptureStore) -> None:
    """A marker alone says that calls arrived and may be missing: neither that there were none, nor that their prefix was missing."""
    store.mark_incomplete(ROLLOUT)
    row = {**ROW, "num_model_calls": 2}
    attach_model_calls(row, store)
    assert codes(row[ATTACHMENT_KEY]) == {
        "model_call_capture_incomplete": None,
        "model_call_count_differs": "agent=2 captured=0",
    }


def test_stale_records(store: CaptureStore) -> None:
    """Late records of a cleared attempt are not attached; how many there are is told."""
    store.record(ROLLOUT, raw_call())
    stale = [orjson.dumps(raw_call(9.0)) + b"\n"] * 2
    store.stale_path_for(ROLLOUT).write_bytes(b"".join(stale))
    attachment = model_call_capture(store, ROLLOUT)
    assert codes(attachment) == {"model_call_capture_stale": "count=2"}
    assert len(attachment["calls"]) == 1


def test_a_file_that_cannot_be_read(store: CaptureStore) -> None:
    """A capture path that is no file is a gap and a counter, never an exception."""
    store.path_for(ROLLOUT).mkdir()
    before = counted("attachments.failed")
    row = dict(ROW)
    assert attach_model_calls(row, store)
    assert "model_call_capture_unreadable" in codes(row[ATTACHMENT_KEY])
    assert counted("attachments.failed") == before + 1


@pytest.mark.parametrize(
    "resend", [{"of": []}, {"of": {}}, {"count": 1}, {"of": "nobody"}, {}, {"of": None}]
)
def test_odd_resends(store: CaptureStore, resend: dict[str, Any]) -> None:
    """Whatever a foreign line has as `resend`, its rollout is attached and nothing is left out on a guess."""
    store.record(ROLLOUT, raw_call(1.0, request={"model": "other"}, error_category="timeout"))
    store.record(ROLLOUT, raw_call(2.0, resend=resend))
    attachment = model_call_capture(store, ROLLOUT)
    assert attachment["metrics"]["num_resends"] == 0 and "gaps" not in attachment


@pytest.mark.parametrize("row", [{}, {"_ng_rollout_id": "a/b"}, {"_ng_task_index": 1}])
def test_rows_that_name_no_rollout(store: CaptureStore, row: dict[str, Any]) -> None:
    """A row without a usable id is left as it is."""
    before = dict(row)
    assert not attach_model_calls(row, store)
    assert row == before


def test_a_resend_counts_once() -> None:
    """A failed call that a later one certainly repeats is left out of the sums, and the sums over every record stand beside them."""
    from otel_gym.capture.record import build_model_call_record
    from otel_gym.rollouts.resends import metrics_of

    usage = {"prompt_tokens": 7, "completion_tokens": 1}
    cut = raw_call(1.0, error_category="stream_truncated", response={"usage": usage})
    again = raw_call(2.0, resend={"count": 1, "of": cut["model_call_id"], "reason": "same_bytes"})
    metrics = metrics_of([build_model_call_record(one) for one in (cut, again)])
    assert (metrics["num_calls"], metrics["tokens_in"], metrics["num_resends"]) == (1, 7, 1)
    assert metrics["with_resends"]["num_calls"] == 2
    assert metrics["with_resends"]["tokens_in"] == 14
    assert metrics["num_errors"] == 0


@pytest.mark.parametrize(
    ("change", "left_out"),
    [
        ({}, 1),
        ({"error_category": None}, 0),
        ({"request": {"model": "other"}}, 0),
        ({"dialect": "messages"}, 0),
        ({"completed_at": 9.0}, 0),
    ],
)
def test_a_resend_of_an_unnamed_call(change: dict[str, Any], left_out: int) -> None:
    """A retry header alone repeats the latest failed call with an equal request that had ended; anything less certain is counted."""
    from otel_gym.capture.record import build_model_call_record
    from otel_gym.rollouts.resends import metrics_of

    failed = raw_call(1.0, **{"error_category": "upstream_error", "status_code": 500, **change})
    again = raw_call(2.0, resend={"count": 1, "of": None, "reason": "header"})
    metrics = metrics_of([build_model_call_record(one) for one in (failed, again)])
    assert metrics["num_resends"] == left_out
    assert metrics["num_calls"] == 2 - left_out


def test_a_chain_of_resends_counts_once() -> None:
    """Two failures and the retry that succeeds are one call in the sums."""
    from otel_gym.capture.record import build_model_call_record
    from otel_gym.rollouts.resends import metrics_of

    chain = [
        raw_call(1.0, error_category="upstream_error"),
        raw_call(2.0, error_category="upstream_error", resend={"count": 1, "of": None}),
        raw_call(3.0, resend={"count": 2, "of": None}),
    ]
    metrics = metrics_of([build_model_call_record(one) for one in chain])
    assert (metrics["num_calls"], metrics["num_resends"]) == (1, 2)
