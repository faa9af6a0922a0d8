"""`otel-gym rederive`: what the kept bytes say, for our own lines and for those of NeMo Gym."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from otel_gym.capture.rederive import rederive
from otel_gym.capture.store import CaptureStore
from otel_gym.cli.main import run
from otel_gym.cli.rederive import command
from tests.dialects.facts import line
from tests.dialects.streams import DONE, chat, delta, event

STREAM = chat(delta(0, content="a"), delta(1, content="b")) + DONE


def gym_line(response: Any, response_raw: str, **fields: Any) -> dict[str, Any]:
    """A line as NeMo Gym 0.7.0 writes it."""
    return {
        "model_call_id": "b" * 32,
        "dialect": "chat",
        "model_ref": None,
        "started_at": 1.0,
        "completed_at": 2.0,
        "latency_ms": 1.0,
        "latency_ttft_ms": None,
        "status_code": 200,
        "error_category": None,
        "request": {},
        "response": response,
        "response_raw": response_raw,
        **fields,
    }


MERGED = gym_line({"choices": [{"index": 0, "message": {"content": "ab"}}]}, STREAM.decode())


def test_our_own_lines_say_what_their_bytes_say() -> None:
    """A line that this version wrote does not differ, whatever the body."""
    bodies = [
        (STREAM, {"streamed": True}),
        (STREAM + b": \xff\n\n", {"streamed": True}),
        (chat(delta(content="a")) + b"data: oops\n\n", {"streamed": True}),
        (chat(delta(content="a")), {"streamed": True, "ending": "cancelled"}),
        (gzip.compress(STREAM)[:-9], {"streamed": True, "response_encoding": "gzip"}),
        (STREAM * 50, {"streamed": True, "max_body_bytes": 1000, "terminal": "complete"}),
        (b"[1]", {}),
        (b"", {"streamed": True}),
    ]
    for body, overrides in bodies:
        raw = line("chat", body, **overrides)
        result = rederive(raw)
        assert result is None or result == (raw, []), body
    assert rederive(line("chat", b'{"id": "x"}')) is None


def test_lines_of_the_reference_are_repaired() -> None:
    """Merged choices come apart, false truncation goes, a lost response comes back."""
    result = rederive(MERGED)
    assert result is not None
    repaired, found = result
    assert [choice["message"]["content"] for choice in repaired["response"]["choices"]] == [
        "a",
        "b",
    ]
    assert "response.choices" in {difference.path for difference in found}
    text = (event("message_start", message={"id": "m"}) + event("message_stop")).decode()
    data_only = "\n".join(one for one in text.split("\n") if not one.startswith("event:"))
    false_cut = gym_line(None, data_only, dialect="messages", error_category="stream_truncated")
    result = rederive(false_cut)
    assert result is not None and result[0]["error_category"] is None
    assert result[0]["response"] == {"id": "m"}
    lost = gym_line(None, STREAM.decode().removesuffix(DONE.decode()), error_category="exception")
    result = rederive(lost)
    assert result is not None
    assert result[0]["response"]["choices"] and result[0]["error_category"] == "exception"


def test_a_call_cancelled_after_its_terminal_event_was_complete() -> None:
    """The client left early, the answer was whole."""
    result = rederive(gym_line(MERGED["response"], STREAM.decode(), error_category="cancelled"))
    assert result is not None and result[0]["error_category"] is None


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"dialect": "chat", "response_raw": ""},
        {"dialect": "unheard.of", "response_raw": "data: {}\n\n"},
        {"dialect": "chat", "response_raw_b64": "%"},
        {"dialect": "chat", "response_raw": "<html>"},
        {"dialect": "chat", "response_raw": 7},
        {"dialect": [], "response_raw": "x"},
        {"dialect": "chat", "response_raw": "[redacted]", "stream": {"terminal": "complete"}},
    ],
)
def test_lines_without_usable_bytes_are_left_alone(raw: dict[str, Any]) -> None:
    """Nothing is made up."""
    assert rederive(raw) is None


@pytest.fixture
def store(tmp_path: Path) -> CaptureStore:
    """A rollout with a faulty line between a torn one and a good one, and a rollout without faults."""
    store = CaptureStore(tmp_path / "captures")
    good = line("chat", STREAM, streamed=True)
    store.path_for("7-2").write_bytes(
        json.dumps(good).encode() + b'\n{"torn": \n' + json.dumps(MERGED).encode() + b"\n"
    )
    store.path_for("8-0").write_bytes(json.dumps(good).encode() + b"\n")
    return store


def invoke(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(command, arguments)


def test_the_repaired_copy_stands_beside_the_original(store: CaptureStore) -> None:
    """Lines that do not differ, damaged ones included, are copied byte for byte; the original stays."""
    before = store.path_for("7-2").read_bytes()
    result = invoke(str(store.root))
    assert result.exit_code == 0, result.output
    assert "4 lines, 3 with response bytes, 1 read differently, 1 unreadable" in result.output
    assert store.path_for("7-2").read_bytes() == before
    copied = (store.root / "7-2.rederived.jsonl").read_bytes().splitlines()
    assert copied[:2] == before.splitlines()[:2]
    repaired = json.loads(copied[2])
    assert len(repaired["response"]["choices"]) == 2 and repaired["model_call_id"] == "b" * 32
    assert not (store.root / "8-0.rederived.jsonl").exists()
    assert list(store.rollouts()) == ["7-2", "8-0"]
    assert not list(store.root.glob("*.partial"))


def test_check_writes_nothing_and_says_by_its_exit_code(store: CaptureStore) -> None:
    """1 where something differs, 0 where nothing does."""
    before = sorted(path.name for path in store.root.iterdir())
    assert invoke(str(store.root), "--check").exit_code == 1
    assert invoke(str(store.root), "8-0", "--check").exit_code == 0
    assert sorted(path.name for path in store.root.iterdir()) == before


def test_json_for_machines(store: CaptureStore) -> None:
    """Counts and every difference with its path."""
    found = json.loads(invoke(str(store.root), "7-2", "--check", "--json").output)
    assert (found["lines"], found["differing"], found["unreadable"]) == (3, 1, 1)
    (entry,) = found["differences"]
    assert entry["line"] == 2 and entry["rollout_id"] == "7-2"
    assert {one["path"] for one in entry["differences"]} >= {"response.choices"}


def test_bytes_that_are_still_encoded_are_decoded() -> None:
    """A body kept with its content encoding is read through it."""
    raw = gym_line(None, "", response_raw_b64=base64.b64encode(gzip.compress(STREAM)).decode())
    raw["response_raw_encoding"] = "gzip"
    result = rederive(raw)
    assert result is not None and len(result[0]["response"]["choices"]) == 2


def test_an_unknown_rollout_or_directory_is_one_clear_line(
    store: CaptureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, no traceback."""
    assert run(["rederive", str(store.root), "9-9"]) == 2
    assert "no records of rollout '9-9'" in capsys.readouterr().err
    assert run(["rederive", str(store.root / "none")]) == 2
