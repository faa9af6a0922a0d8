"""`otel-gym show`: directory, rollout, call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym.capture.store import CaptureStore
from otel_gym.cli.main import run


def record(number: int, **more: Any) -> dict[str, Any]:
    return {
        "model_call_id": f"{number:032x}",
        "dialect": "chat",
        "model_ref": None,
        "started_at": 1000.0 + number,
        "completed_at": 1000.5 + number,
        "latency_ms": 500.0,
        "latency_ttft_ms": 100.0,
        "status_code": 200,
        "error_category": None,
        "request": {"model": "m"},
        "response": {
            "model": "m",
            "choices": [
                {"index": 0, "message": {"content": "\x1b[31mred\u202e"}, "finish_reason": "stop"}
            ],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
        },
        **more,
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    store = CaptureStore(tmp_path / "captures")
    store.record("7-2", record(1))
    store.record("7-2", record(2, error_category="rate_limit", status_code=429, response={}))
    store.record("8-0", record(3))
    return store.root


def test_a_directory_lists_its_rollouts(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line a rollout with its sums; a sum that not every call reported says so."""
    assert run(["show", str(directory)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:2] == ["7-2", "2"] and "(1" in lines[1] and lines[1][-1] == "1"
    assert lines[2][:3] == ["8-0", "1", "10"]


def test_json_is_the_same_for_machines(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints exactly one JSON value on stdout."""
    assert run(["show", str(directory), "--json"]) == 0
    value = orjson.loads(capsys.readouterr().out)
    assert [(one["rollout_id"], one["calls"], one["errors"]) for one in value["rollouts"]] == [
        ("7-2", 2, 1),
        ("8-0", 1, 0),
    ]
    assert run(["show", str(directory), "7-2", "--json"]) == 0
    calls = orjson.loads(capsys.readouterr().out)["calls"]
    assert [call["error_category"] for call in calls] == [
        None,
        "rate_limit",
    ] and "request" not in calls[0]


def test_a_rollout_is_a_waterfall(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Calls stand on a time axis, with what they used and how they ended."""
    assert run(["show", str(directory), "7-2"]) == 0
    out = capsys.readouterr().out
    assert "█" in out and "rate_limit" in out and "+1.00s" in out


def test_a_call_is_shown_in_full_and_cannot_steer_the_terminal(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole record comes out, found in whichever rollout holds it, with control characters escaped."""
    assert run(["show", str(directory), "--call", f"{1:032x}"]) == 0
    out = capsys.readouterr().out
    assert '"prompt_tokens": 10' in out
    assert "\x1b" not in out and "\u202e" not in out and "red" in out


@pytest.mark.parametrize(
    "arguments", [["9-9"], ["../7-2"], ["--call", "nope"], ["8-0", "--call", f"{1:032x}"]]
)
def test_what_is_not_there_is_told(
    directory: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A rollout, an id or a call that is not there gives one line and exit code 2."""
    assert run(["show", str(directory), *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1


def test_damage_is_counted_not_hidden(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged line costs its own call and is told; the neighbours are shown."""
    path = directory / "7-2.capture.jsonl"
    path.write_bytes(b"{torn\n" + path.read_bytes())
    assert run(["show", str(directory), "7-2"]) == 0
    printed = capsys.readouterr()
    assert "rate_limit" in printed.out and "1 damaged" in printed.err
