"""The grammar of rollout ids and the id that a run body names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from otel_gym.correlation.rollout_id import (
    MAX_LENGTH,
    checked,
    indices,
    is_valid,
    rollout_id_from_run_body,
    why_invalid,
)
from otel_gym.errors import InvalidRolloutId

VALID = ["0-0", "7-2-a3", "a", "Task.1_x-9", "9" * MAX_LENGTH]
INVALID = [
    "", ".", "..", ".hidden", "-a", "_x", "a/b", "a\\b", "a b", "abc\n", "é", "a\x00", "\uff19-0", "x" * (MAX_LENGTH + 1),
    "x.capture", "x.capture.jsonl", "x.capture.incomplete", "x.stale", "X.Stale.JSONL", "x.rollout.json", "x.zst",
]  # fmt: skip


@pytest.mark.parametrize("rollout_id", VALID)
def test_a_valid_id_is_its_own_checked_form(rollout_id: str) -> None:
    """A valid id passes unchanged."""
    assert checked(rollout_id) == rollout_id


@pytest.mark.parametrize("rollout_id", INVALID)
def test_an_invalid_id_is_refused_with_its_value_and_reason(rollout_id: str) -> None:
    """Each way to break the grammar is refused, and the message says which."""
    with pytest.raises(InvalidRolloutId) as caught:
        checked(rollout_id)
    assert (why_invalid(rollout_id) or "no reason") in str(caught.value)
    assert isinstance(caught.value, ValueError)


@given(st.text(max_size=12))
def test_a_valid_id_can_be_a_file_name_and_a_url_segment(text: str) -> None:
    """Whatever passes is one visible path segment that needs no escaping."""
    if is_valid(text):
        assert (
            text.isascii() and "/" not in text and not text.startswith(".") and text == text.strip()
        )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"_ng_task_index": 3, "_ng_rollout_index": 1}, "3-1"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 0}, "3-1"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}, "3-1-a2"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": "2"}, "3-1-a2"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2.0}, "3-1-a2"),
        ({"_ng_rollout_id": "mine"}, "mine"),
        (
            {
                "_ng_rollout_id": "mine",
                "_ng_task_index": 3,
                "_ng_rollout_index": 1,
                "_ng_attempt_index": 1,
            },
            "mine-a1",
        ),
        ({"_ng_task_index": 3}, None),
        ({"_ng_rollout_index": 3}, None),
        ({}, None),
    ],
)
def test_a_run_body_names_its_rollout(body: dict[str, Any], expected: str | None) -> None:
    """An explicit id wins over the indices; a positive attempt is appended to either."""
    assert rollout_id_from_run_body(body) == expected


def test_a_model_names_its_rollout_by_attributes() -> None:
    """Objects carry the explicit id as `capture_rollout_id`, and Gym's underscored keys as extra fields."""

    class Body(BaseModel):
        model_config = ConfigDict(extra="allow")

    assert rollout_id_from_run_body(SimpleNamespace(capture_rollout_id="x-1")) == "x-1"
    assert (
        rollout_id_from_run_body(Body.model_validate({"_ng_task_index": 1, "_ng_rollout_index": 2}))
        == "1-2"
    )


@pytest.mark.parametrize(
    "body",
    [
        {"_ng_rollout_id": "a/b"},
        {"_ng_rollout_id": 7},
        {"_ng_task_index": "a/b", "_ng_rollout_index": 1},
        {"_ng_task_index": "x\n", "_ng_rollout_index": ".."},
        {"_ng_task_index": 1, "_ng_rollout_index": 1, "_ng_attempt_index": "two"},
        {"_ng_task_index": 1, "_ng_rollout_index": 1, "_ng_attempt_index": -1},
        {"_ng_task_index": 1, "_ng_rollout_index": 1, "_ng_attempt_index": True},
        {"_ng_task_index": 1, "_ng_rollout_index": 1, "_ng_attempt_index": 1.5},
    ],
)
def test_derived_ids_are_checked_when_they_are_made(body: dict[str, Any]) -> None:
    """No id that breaks the grammar comes out of a run body, whichever keys it is made from."""
    with pytest.raises(InvalidRolloutId):
        rollout_id_from_run_body(body)


@pytest.mark.parametrize(
    ("rollout_id", "expected"),
    [("7-2", (7, 2, 0)), ("7-2-a3", (7, 2, 3)), ("x-2", None), ("7-2-a0", None)],
)
def test_indices_are_read_back_from_an_id(
    rollout_id: str, expected: tuple[int, int, int] | None
) -> None:
    """Task, rollout and attempt come back from an id of that shape, and from no other."""
    assert indices(rollout_id) == expected
