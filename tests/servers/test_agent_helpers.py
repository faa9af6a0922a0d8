"""Every URL helper of an agent, over every kind of run body, against the rules of the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from otel_gym.correlation.run import open_run
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from otel_gym.errors import InvalidRolloutId, SettingsError
from otel_gym.servers.agent import SimpleResponsesAPIAgent
from otel_gym.servers.resolve import model_server_root_url, resolve_model_base_url
from otel_gym.settings import settings_from

ROOT = "http://127.0.0.1:8000"
BODIES: dict[str, tuple[dict[str, Any], str | None]] = {
    "indices": ({"_ng_task_index": 7, "_ng_rollout_index": 2}, "7-2"),
    "indices of zero": ({"_ng_task_index": 0, "_ng_rollout_index": 0}, "0-0"),
    "indices as text": ({"_ng_task_index": "7", "_ng_rollout_index": "2"}, "7-2"),
    "explicit": ({"_ng_rollout_id": "blue.1"}, "blue.1"),
    "explicit over indices": (
        {"_ng_rollout_id": "blue", "_ng_task_index": 1, "_ng_rollout_index": 1},
        "blue",
    ),
    "attempt": ({"_ng_task_index": 7, "_ng_rollout_index": 2, "_ng_attempt_index": 3}, "7-2-a3"),
    "attempt as text": (
        {"_ng_task_index": 7, "_ng_rollout_index": 2, "_ng_attempt_index": "1"},
        "7-2-a1",
    ),
    "first attempt": ({"_ng_task_index": 7, "_ng_rollout_index": 2, "_ng_attempt_index": 0}, "7-2"),
    "explicit attempt": ({"_ng_rollout_id": "blue", "_ng_attempt_index": 1}, "blue-a1"),
    "missing": ({}, None),
    "missing rollout": ({"_ng_task_index": 7}, None),
    "missing task": ({"_ng_rollout_index": 7}, None),
}
INVALID: dict[str, dict[str, Any]] = {
    "slash": {"_ng_rollout_id": "a/b"},
    "dots": {"_ng_rollout_id": ".."},
    "newline": {"_ng_rollout_id": "abc\n"},
    "empty": {"_ng_rollout_id": ""},
    "number": {"_ng_rollout_id": 7},
    "unsafe index": {"_ng_task_index": "../7", "_ng_rollout_index": 0},
    "attempt is no number": {
        "_ng_task_index": 1,
        "_ng_rollout_index": 0,
        "_ng_attempt_index": "one",
    },
    "attempt below zero": {"_ng_rollout_id": "a", "_ng_attempt_index": -1},
    "reserved suffix": {"_ng_rollout_id": "a.capture.jsonl"},
    "overlong": {"_ng_rollout_id": "a" * 201},
}


def _agent(on: bool, token_capture: bool = False, **more: Any) -> SimpleResponsesAPIAgent:
    raw = {
        "observability_enabled": on,
        "model_call_capture_dir": "/captures" if on else None,
        **more,
    }
    agent = SimpleResponsesAPIAgent(settings_from(raw))
    agent.token_capture = token_capture
    return agent


def _request(path: str, rollout_id: str | None) -> Request:
    parameters = {"rollout_id": rollout_id} if rollout_id else {}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [],
        "path_params": parameters,
    }
    return Request(scope)


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.parametrize("token_capture", [True, False], ids=["tokens", "plain"])
@pytest.mark.parametrize("case", BODIES)
def test_run_helpers(on: bool, token_capture: bool, case: str) -> None:
    """Ids, paths and base URLs get the prefix exactly when observability or token capture is on and the body names a rollout."""
    body, named = BODIES[case]
    agent = _agent(on, token_capture)
    expected = named if on or token_capture else None
    segment = "/training-token-capture" if token_capture else ""
    prefix = f"/ng-rollout/{expected}{segment}" if expected else ""
    assert agent.rollout_id_from_run(body) == expected
    assert agent.url_path_for_run("/v1/messages", body) == f"{prefix}/v1/messages"
    assert agent.base_url_for_run(ROOT, body) == ROOT + prefix
    slash = ROOT + prefix if expected else ROOT + "/"
    assert agent.base_url_for_run(ROOT + "/", body) == slash


@pytest.mark.parametrize("case", INVALID)
def test_invalid_ids_are_refused(case: str) -> None:
    """Every helper refuses an id or index that breaks the grammar with an error that quotes it, and none does while everything is off."""
    body = INVALID[case]
    on, off = _agent(True), _agent(False)
    for refused in (
        lambda: on.rollout_id_from_run(body),
        lambda: on.url_path_for_run("/v1/responses", body),
        lambda: on.base_url_for_run(ROOT, body),
    ):
        with pytest.raises(InvalidRolloutId, match=r"^Invalid (rollout id|attempt index): .+"):
            refused()
    assert off.url_path_for_run("/v1/responses", body) == "/v1/responses"


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.parametrize(
    ("path", "rollout_id", "expected"),
    [
        ("/v1/responses", None, "/v1/messages"),
        ("/ng-rollout/7-2/v1/responses", "7-2", "/ng-rollout/7-2/v1/messages"),
        ("/ng-rollout/7-2-a1/v1/responses", "7-2-a1", "/ng-rollout/7-2-a1/v1/messages"),
        (
            "/ng-rollout/7-2/training-token-capture/v1/responses",
            "7-2",
            "/ng-rollout/7-2/training-token-capture/v1/messages",
        ),
    ],
)
def test_request_helper(on: bool, path: str, rollout_id: str | None, expected: str) -> None:
    """A request's own prefix is kept, token segment included, whatever the settings say."""
    assert _agent(on).url_path_for_request("/v1/messages", _request(path, rollout_id)) == expected


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.parametrize(
    ("rollout_id", "prefix"),
    [(None, ""), ("7-2", "/ng-rollout/7-2"), ("blue-a1", "/ng-rollout/blue-a1")],
)
def test_model_base_url(on: bool, rollout_id: str | None, prefix: str) -> None:
    """A model server is found by name; its URL ends in /v1 and has the prefix of a given id, with no gate of its own."""
    agent = _agent(
        on,
        policy={"responses_api_models": {"vllm_model": {"host": "0.0.0.0", "port": 8123}}},
        judge={"responses_api_models": {"vllm_model": {"host": "10.0.0.9", "port": 9}}},
    )
    assert agent.resolve_model_base_url("policy", rollout_id) == f"http://127.0.0.1:8123{prefix}/v1"
    assert agent.resolve_model_base_url("judge", rollout_id) == f"http://10.0.0.9:9{prefix}/v1"


def test_model_server_of_the_agents_block() -> None:
    """An agent without a name to look for uses the model server that its configuration block names."""
    settings = settings_from(
        {
            "policy": {"responses_api_models": {"m": {"port": 8123}}},
            "judge": {"responses_api_models": {"m": {"host": "::1", "port": 9}}},
            "solver": {"responses_api_agents": {"simple": {"model_server": {"name": "judge"}}}},
        }
    )
    agent = SimpleResponsesAPIAgent(settings, name="solver")
    assert agent.model_server_url == "http://[::1]:9"
    assert agent.resolve_model_base_url() == "http://[::1]:9/v1"


def test_model_server_that_cannot_be_resolved() -> None:
    """A wrong name and a missing port are errors that say which server and what to do."""
    settings = settings_from({"policy": {"responses_api_models": {"m": {}}}})
    with pytest.raises(SettingsError, match="no model server named 'polcy'; did you mean 'policy'"):
        resolve_model_base_url(settings, "polcy", environment={})
    with pytest.raises(SettingsError, match="'policy' has no port"):
        resolve_model_base_url(settings, "policy", environment={})


def test_environment_of_a_subprocess_agent() -> None:
    """Gym's two variables resolve the model server that they name, and only that one."""
    settings = settings_from(
        {
            "policy": {"responses_api_models": {"m": {"port": 1}}},
            "judge": {"responses_api_models": {"m": {"port": 2}}},
        }
    )
    environment = {
        "NEMO_GYM_MODEL_SERVER_NAME": "policy",
        "NEMO_GYM_MODEL_SERVER_BASE_URL": "http://10.1.1.1:80/v1",
    }
    assert (
        model_server_root_url(settings, "policy", environment=environment) == "http://10.1.1.1:80"
    )
    assert model_server_root_url(settings, "judge", environment=environment) == "http://127.0.0.1:2"


def test_launchers_url_with_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher's URL that already names the rollout is kept as it is, and no helper puts a second prefix behind it."""
    given = "http://10.1.1.1:80/ng-rollout/7-2/training-token-capture"
    monkeypatch.setenv("NEMO_GYM_MODEL_SERVER_BASE_URL", given)
    server = {"policy": {"responses_api_models": {"m": {"port": 1}}}}
    off, on = _agent(False, **server), _agent(True, token_capture=True, **server)
    assert off.base_url_for_run(off.model_server_url, BODIES["indices"][0]) == given
    assert on.base_url_for_run(on.model_server_url, BODIES["indices"][0]) == given
    assert off.resolve_model_base_url("policy") == given + "/v1"
    assert off.resolve_model_base_url("policy", "8-0") == "http://10.1.1.1:80/ng-rollout/8-0/v1"


def test_no_request_has_no_prefix() -> None:
    """Code that has no request at hand may pass none."""
    assert _agent(True).url_path_for_request("/v1/responses", None) == "/v1/responses"


def test_run_bodies_may_be_models() -> None:
    """Helpers read a pydantic model's fields and extras as they read a mapping."""
    from pydantic import BaseModel, ConfigDict

    class Body(BaseModel):
        model_config = ConfigDict(extra="allow")

    body = Body.model_validate({"_ng_task_index": 3, "_ng_rollout_index": 4})
    assert _agent(True).url_path_for_run("/x", body) == "/ng-rollout/3-4/x"


def test_trace_headers(tmp_path: Path) -> None:
    """An agent can give its own calls the rollout's trace: the ids are those computed from the run and the rollout."""
    run = open_run(tmp_path)
    agent = SimpleResponsesAPIAgent(
        settings_from({"observability_enabled": True, "model_call_capture_dir": str(tmp_path)})
    )
    headers = agent.trace_headers_for_run({"_ng_task_index": 1, "_ng_rollout_index": 0})
    expected = f"00-{trace_id(run.run_id, '1-0')}-{root_span_id(run.run_id, '1-0')}-01"
    assert headers["traceparent"] == expected
    assert agent.trace_headers_for_run({}) == {}
    assert _agent(False).trace_headers_for_run({"_ng_rollout_id": "a"}) == {}
