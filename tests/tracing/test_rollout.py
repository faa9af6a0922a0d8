"""The durable rollout record."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gym.correlation.run import Run
from otel_gym.errors import InvalidRolloutId, StoreError
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.rollout import (
    RolloutRecord,
    RolloutTotals,
    read_rollout_record,
    rollout_record_ids,
    write_rollout_record,
)
from otel_gym.tracing.spans import rollout_span

RECORD = RolloutRecord(
    rollout_id="3-1",
    started_at=1_790_000_000.5,
    completed_at=1_790_000_060.25,
    agent="simple_agent",
    reward=0.0,
    totals=RolloutTotals(model_calls=3, input_tokens=10),
)


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """Every field survives; the file is private, and nothing else is left in the directory."""
    path = write_rollout_record(tmp_path, RECORD)
    assert path.name == "3-1.rollout.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_rollout_record(tmp_path, "3-1") == RECORD
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert rollout_record_ids(tmp_path) == ["3-1"]
    assert read_rollout_record(tmp_path, "4-0") is None


def test_a_record_replaces_the_one_before(tmp_path: Path) -> None:
    """Writing again leaves the newer record, whole."""
    write_rollout_record(tmp_path, RECORD)
    newer = RECORD.model_copy(update={"reward": 1.0})
    write_rollout_record(tmp_path, newer)
    assert read_rollout_record(tmp_path, "3-1") == newer


def test_model_and_file_give_the_same_root_span(tmp_path: Path, run: Run) -> None:
    """The root made from the model's mapping equals the root made from what stands in the file."""
    write_rollout_record(tmp_path, RECORD)
    read = read_rollout_record(tmp_path, "3-1")
    assert read is not None
    options = SpanOptions()
    span = rollout_span(read.to_mapping(), run, options)
    assert span == rollout_span(RECORD.to_mapping(), run, options)
    assert span.attributes["otel_gym.reward"] == 0.0


def test_what_cannot_be_used_says_so(tmp_path: Path) -> None:
    """A bad id, a damaged file and a directory that is not there are errors with the path in them."""
    with pytest.raises(InvalidRolloutId):
        write_rollout_record(tmp_path, RECORD.model_copy(update={"rollout_id": "../x"}))
    (tmp_path / "5-0.rollout.json").write_text("[]")
    with pytest.raises(StoreError, match=r"5-0\.rollout\.json"):
        read_rollout_record(tmp_path, "5-0")
    (tmp_path / "6-0.rollout.json").write_text('{"started_at": "x", "completed_at": 1}')
    with pytest.raises(StoreError, match="started_at"):
        read_rollout_record(tmp_path, "6-0")
    with pytest.raises(StoreError, match="cannot be written"):
        write_rollout_record(tmp_path / "nowhere", RECORD)
