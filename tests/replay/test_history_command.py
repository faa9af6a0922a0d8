"""`otel-gym history`: lists, verifies, and exits with 1 on damage."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from otel_gym.cli.main import run
from otel_gym.replay import HistoryStore
from tests.replay.test_store import MESSAGE, made


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "h.db"
    with HistoryStore(path) as store:
        store.checkpoint("task-0", [MESSAGE, made(0)])
        store.checkpoint("[red]task-1", [made(1)], attempt=2)
    return path


def test_all_histories_are_listed(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a rollout, each branch has a line, its name as it is, and all is well."""
    assert run(["history", str(database)]) == 0
    shown = capsys.readouterr().out
    assert "task-0" in shown
    assert "[red]task-1" in shown
    assert shown.count("ok") == 2


def test_json_is_alone_on_stdout(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, stdout is one JSON value with the rollout that was asked for."""
    assert run(["history", str(database), "task-0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["damaged"] is False
    (branch,) = told["branches"]
    assert branch["rollout_id"] == "task-0"
    assert (branch["entries"], branch["turns"], branch["damage"]) == (2, 1, None)


def test_damage_exits_with_1(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged history is named and the others are still verified."""
    connection = sqlite3.connect(database)
    connection.execute("UPDATE column_data SET data = zeroblob(length(data)) WHERE node_id = 3")
    connection.commit()
    connection.close()
    assert run(["history", str(database), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["damaged"] is True
    damage = {branch["rollout_id"]: branch["damage"] for branch in told["branches"]}
    assert damage["task-0"] is None
    assert "the digest of column" in damage["[red]task-1"]
    assert run(["history", str(database)]) == 1
    assert "digest of column" in " ".join(capsys.readouterr().out.split())


def test_unusable_input_exits_with_2(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file, another file, a folder and an unknown rollout are each one line on stderr."""
    (tmp_path / "text").write_text("this is no database at all")
    for arguments in (
        [str(tmp_path / "absent")],
        [str(tmp_path / "text")],
        [str(tmp_path)],
        [str(database), "task-9"],
    ):
        assert run(["history", *arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
