"""Which rollouts an input asks for, and what is said of rows that can't be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.errors import UsageProblem
from otel_gym.rollouts.state import State, read_state
from otel_gym.rollouts.tasks import plan, read_rows
from tests.rollouts.conftest import write_rows


def _plan(rows: list[Any], **named: Any) -> tuple[list[str], list[str]]:
    planned, problems = plan(enumerate(rows), **named)
    return [one.key for one in planned], problems


def test_rows_get_task_and_rollout_indices() -> None:
    """A task's index is the number of its row, and each repeat has the next rollout index."""
    assert _plan([{}, {}], num_repeats=3) == (["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"], [])
    [first, *_], _ = plan(enumerate([{"question": "?"}]), num_repeats=2)
    assert first.body(0) == {"question": "?", "_ng_task_index": 0, "_ng_rollout_index": 0}
    assert first.body(2)["_ng_attempt_index"] == 2


def test_rows_keep_the_indices_that_they_have() -> None:
    """A row's own task index is kept; a row with its own rollout index, or an explicit id, is that rollout."""
    rows = [
        {"_ng_task_index": 40},
        {"_ng_task_index": 41, "_ng_rollout_index": 9},
        {"_ng_rollout_id": "blue"},
    ]
    assert _plan(rows, num_repeats=2)[0] == ["40-0", "40-1", "41-9", "blue-0", "blue-1"]
    assert _plan(rows)[0] == ["40-0", "41-9", "blue"]
    [*_, blue], _ = plan(enumerate(rows))
    assert blue.body(1)["_ng_rollout_id"] == "blue"


def test_limit_counts_rows() -> None:
    """A limit takes the first rows, each with all its repeats."""
    assert _plan([{}, {}, {}], num_repeats=2, limit=2)[0] == ["0-0", "0-1", "1-0", "1-1"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"{oops", "is not JSON"),
        (b"[1]", "must be a JSON object, not a list"),
        (b'{"_ng_rollout_id": "a/b"}', "Invalid rollout id: 'a/b' must be ASCII"),
        (b'{"_ng_task_index": "../x"}', "Invalid rollout id: '../x-0' must be"),
        (b'{"_ng_rollout_id": "last"}', "rollout id last is already that of another row"),
        (b'{"_ng_rollout_id": "last-a1"}', "could be an attempt of last"),
    ],
)
def test_a_bad_row_costs_one_line_and_the_rest_goes_on(
    tmp_path: Path, row: bytes, said: str
) -> None:
    """Malformed, invalid and duplicate rows are named with file and row, and all others are planned."""
    path = write_rows(tmp_path / "tasks.jsonl", [{}, {"_ng_rollout_id": "last"}, row, {}])
    planned, [problem] = plan(read_rows(path), source=str(path))
    assert [one.key for one in planned] == ["0-0", "last", "3-0"]
    assert problem.startswith(str(path)) and said in problem and "\n" not in problem


def test_a_missing_task_index_is_said() -> None:
    """A row that has a rollout index only is given the number of its row as task, and that is said."""
    keys, [problem] = _plan([{}, {"_ng_rollout_index": 5}])
    assert keys == ["0-0", "1-5"]
    assert "has _ng_rollout_index but no _ng_task_index; it is task 1" in problem


def test_no_input(tmp_path: Path) -> None:
    """A file that can't be read is one clear line."""
    with pytest.raises(UsageProblem, match=r"tasks\.jsonl: cannot be read: No such file"):
        list(read_rows(tmp_path / "tasks.jsonl"))


def test_resume_dispatches_what_is_missing(tmp_path: Path) -> None:
    """Done rollouts are skipped, failed ones get their next attempt, killed ones the same id, exhausted ones nothing."""
    output, failures = tmp_path / "out.jsonl", tmp_path / "out_failures.jsonl"
    write_rows(output, [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1}])
    ids = {"_ng_rollout_index": 0, "error": {"code": "agent_status"}}
    write_rows(
        failures,
        [
            {"_ng_task_index": 1, **ids},
            {"_ng_task_index": 2, **ids},
            {"_ng_task_index": 2, "_ng_attempt_index": 1, **ids},
            {"_ng_task_index": 3, **ids, "error": {"code": "agent_unreachable"}},
            *[{"_ng_task_index": 4, "_ng_attempt_index": n, **ids} for n in range(3)],
        ],
    )
    state = read_state(output, failures)
    planned, _ = plan(enumerate([{}] * 6))
    dispatches, done, exhausted = state.remaining(planned, 3)
    assert [one.rollout_id for one in dispatches] == ["1-0-a1", "2-0-a2", "3-0", "5-0"]
    assert (done, exhausted, state.problems) == (1, 1, [])


def test_damaged_output_rows_are_done_again(tmp_path: Path) -> None:
    """A torn row and a row without indices are named; only what is certainly there counts as done."""
    output = tmp_path / "out.jsonl"
    good = orjson.dumps({"_ng_task_index": 1, "_ng_rollout_index": 0})
    output.write_bytes(b'{"_ng_task_ind\n' + good + b'\n{"reward": 1}\n')
    state = read_state(output, tmp_path / "none")
    assert set(state.done) == {"1-0"}
    assert [p.partition(": row ")[2] for p in state.problems] == [
        "0: is damaged; its rollout is done again",
        "2: has no indices and names no rollout; ignored",
    ]


def test_resume_where_gym_stopped(tmp_path: Path) -> None:
    """Gym's own result, failures and materialised input files are understood: what it left is dispatched, with the attempt that comes next."""
    output, failures = tmp_path / "rollouts.jsonl", tmp_path / "rollouts_failures.jsonl"
    materialised = [
        {"_ng_task_index": task, "_ng_rollout_index": repeat, "responses_create_params": {}}
        for task in range(2)
        for repeat in range(3)
    ]
    write_rows(output, [{**materialised[0], "reward": 1.0, "response": {}}])
    timed_out = {"_ng_failure_class": "timeout_exceeded", "error": "walltime"}
    write_rows(
        failures,
        [
            {**materialised[1], **timed_out},
            {**materialised[2], **timed_out, "_ng_failure_terminal": True},
        ],
    )
    planned, problems = plan(enumerate(materialised), num_repeats=1)
    dispatches, done, exhausted = read_state(output, failures).remaining(planned, 3)
    assert [one.rollout_id for one in dispatches] == ["0-1-a1", "1-0", "1-1", "1-2"]
    assert (done, exhausted, problems) == (1, 1, [])


@given(
    tasks=st.integers(1, 5),
    repeats=st.integers(1, 3),
    data=st.data(),
)
def test_resume_is_exact(tasks: int, repeats: int, data: st.DataObject) -> None:
    """Whatever is done, failed or killed: what resume dispatches, what is done and what is exhausted are all rollouts, each once."""
    planned, _ = plan(enumerate([{}] * tasks), num_repeats=repeats)
    keys = [one.key for one in planned]
    state = State(done=set(data.draw(st.lists(st.sampled_from(keys)))))
    for key in data.draw(st.lists(st.sampled_from(keys), max_size=20)):
        state.attempts[key] += 1
    dispatches, done, exhausted = state.remaining(planned, 3)
    assert len(dispatches) + done + exhausted == len(planned) == tasks * repeats
    assert done == len(state.done)
    for one in dispatches:
        key, failed = one.rollout.key, state.attempts[one.rollout.key]
        assert key not in state.done and failed < 3
        assert one.rollout_id == (f"{key}-a{failed}" if failed else key)
    ids = [one.rollout_id for one in dispatches]
    assert len(set(ids)) == len(ids)
