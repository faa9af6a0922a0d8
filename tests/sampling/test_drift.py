"""The drift report: what servers pinned, what callers sent, what engines got."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym.capture.store import CaptureStore
from otel_gym.cli.main import run
from otel_gym.sampling.drift import DriftReport, call_sampling


def record(number: int, dialect: str = "chat", **more: Any) -> dict[str, Any]:
    return {
        "model_call_id": f"{number:032x}",
        "dialect": dialect,
        "model_ref": {"type": "responses_api_models", "name": "policy"},
        "request": {"messages": []},
        **more,
    }


def pinned(requested: dict[str, Any], **pins: Any) -> dict[str, Any]:
    """The `sampling` of a call to a server with these pins."""
    return {
        "requested": requested,
        "pinned": pins,
        "effective": {**requested, **pins},
        "overridden": [],
        "outbound_sha256": "0" * 64,
    }


def test_without_pins_the_request_is_the_account() -> None:
    """A record without `sampling` (another producer, or a server that pins nothing) is read from its request; names are unified."""
    call = call_sampling(
        "7-2",
        record(1, "responses", request={"max_output_tokens": 5, "temperature": None, "top_p": 0.9}),
    )
    assert call is not None
    assert call.effective == call.requested == {"max_tokens": 5, "top_p": 0.9}
    assert call.shape == {"top_p": 0.9}


@pytest.mark.parametrize(
    "line",
    [
        record(1, response_source="local"),
        record(1, request=None),
        record(1, dialect="fax"),
        {},
    ],
)
def test_calls_that_say_nothing_are_counted_apart(line: dict[str, Any]) -> None:
    """A call that never reached an engine, or that cannot be read, is no evidence of drift."""
    report = DriftReport({"temperature": 1.0})
    report.add("7-2", line)
    assert (report.calls, report.unread, report.differences) == (0, 1, [])


@pytest.mark.parametrize(
    "values",
    [
        {"bad_words": ["\ud800"]}, {"logit_bias": {"1": 10**30}}, {"temperature": {"\udfff": [10**40]}},
        {"top_k": [1, [2]]}, {"temperature": "hot", "min_p": 2**64},
    ],
)  # fmt: skip
def test_any_value_can_be_reported(values: dict[str, Any]) -> None:
    """Whatever a caller sent as a parameter, equal calls make one profile, and the report has its value."""
    report = DriftReport()
    for number in (1, 2):
        report.add("7-2", record(number, request=values))
        report.add("7-2", record(number, sampling=pinned({}, **values)))
    (server,) = report.to_json()["servers"]
    assert server["effective"] == [{"values": values, "calls": 4}]
    assert {"pinned": values, "calls": 2} in server["profiles"]


def test_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Profiles, replaced values, values not sent and mixed rollouts, per server and rollout; exit code 1 only where a required value differs."""
    store = CaptureStore(tmp_path)
    one, two = {"temperature": 1.0, "top_p": 1.0}, {"temperature": 0.0}
    store.record(
        "7-1", record(1, sampling=pinned({"temperature": 0.2, "max_completion_tokens": 5}, **one))
    )
    store.record("7-1", record(2, "messages", sampling=pinned({}, **one)))
    store.record("7-2", record(3, sampling=pinned({}, **one)))
    store.record("7-2", record(4, sampling=pinned({}, **two)))
    store.record("7-2", record(5, response_source="local"))
    store.close()

    assert run(["sampling", str(tmp_path), "--json"]) == 0
    value = orjson.loads(capsys.readouterr().out)
    assert (value["calls"], value["unread_calls"], value["mixed_rollouts"]) == (4, 1, ["7-2"])
    (server,) = value["servers"]
    assert server["server"] == "policy"
    assert server["profiles"] == [{"pinned": one, "calls": 3}, {"pinned": two, "calls": 1}]
    assert server["overridden"] == {"temperature": 1}
    assert server["without"] == {"temperature": 3, "top_p": 4}
    assert [r["rollout_id"] for r in server["rollouts"]] == ["7-1", "7-2"]
    assert len(server["rollouts"][0]["effective"]) == 1

    assert run(["sampling", str(tmp_path), "--json", "--require", "temperature=1.0,top_p=1"]) == 1
    differences = orjson.loads(capsys.readouterr().out)["differences"]
    assert [(d["rollout_id"], d["parameter"], d["effective"]) for d in differences] == [
        ("7-2", "temperature", 0.0),
        ("7-2", "top_p", None),
    ]


def test_the_report_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same in words: what was pinned and replaced, which rollout is mixed, which call differs."""
    store = CaptureStore(tmp_path)
    store.record("7-1", record(1, sampling=pinned({"temperature": 0.2}, temperature=1.0)))
    store.record("7-1", record(2, request={"temperature": 0.7}))
    store.close()
    assert run(["sampling", str(tmp_path), "--require", "temperature=1.0"]) == 1
    out = capsys.readouterr().out
    assert "temperature=1.0" in out
    assert "1 rollouts with more than one effective profile: 7-1" in out
    assert "temperature must be 1.0, the engine got 0.7" in out


def test_required_values_that_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where every call got the required values the exit code is 0, under any spelling of a name and with commas inside a value."""
    store = CaptureStore(tmp_path)
    request = {"max_output_tokens": 5, "stop": ["a", "b"], "temperature": 1}
    store.record("7-1", record(1, "responses", request=request))
    store.close()
    required = 'temperature=1.0,stop=["a","b"],max_tokens=5'
    assert run(["sampling", str(tmp_path), "--require", required]) == 0
    assert "every call got" in capsys.readouterr().out
    with next(iter(tmp_path.glob("*.capture.jsonl"))).open("ab") as file:
        file.write(b"damaged\n")
    assert run(["sampling", str(tmp_path)]) == 0
    assert run(["sampling", str(tmp_path), "--require", required]) == 1
    assert "1 damaged line" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "no such directory"),
        ([".", "--require", "temperature"], "NAME=VALUE"),
        ([".", "--require", "temprature=1"], "did you mean 'temperature'"),
    ],
)
def test_wrong_usage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    """One clear line on stderr, nothing on stdout, exit code 2."""
    monkeypatch.chdir(tmp_path)
    assert run(["sampling", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err and captured.err.count("\n") == 1
