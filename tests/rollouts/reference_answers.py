"""Run by a Python that has nemo-gym: answers each question on stdin (`[function, arguments]`, a JSON line) with what nemo-gym's own code gives."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nemo_gym.base_responses_api_agent import SimpleResponsesAPIAgent
from nemo_gym.base_responses_api_model import (
    CaptureStore,
    aggregate_model_call_metrics,
    aggregate_model_call_records,
    build_model_call_record,
    merge_model_call_capture_into_record,
    read_available_model_call_records,
    read_model_call_records,
)
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.server_utils import ServerClient, apply_rollout_prefix, rollout_path_prefix
from omegaconf import OmegaConf
from starlette.requests import Request

HELPERS = (
    "rollout_id_from_run",
    "url_path_for_run",
    "base_url_for_run",
    "url_path_for_request",
    "resolve_model_base_url",
    "_capture_correlation_enabled",
    "_model_call_capture_enabled",
)


class Agent:
    """Gym's own helpers, on as much of an agent as they look at."""

    for helper in HELPERS:
        locals()[helper] = getattr(SimpleResponsesAPIAgent, helper)

    def __init__(self, on: bool, tokens: bool, configuration: dict[str, Any] | None = None) -> None:
        self.tokens = tokens
        self.server_client = SimpleNamespace(
            global_config_dict=OmegaConf.create(
                {**(configuration or {}), "observability_enabled": on}
            ),
            _build_server_base_url=lambda server: ServerClient._build_server_base_url(None, server),
        )

    def _token_id_capture_enabled(self) -> bool:
        return self.tokens


def of_run(on: bool, tokens: bool, base_url: str, path: str, body: Any) -> list[Any]:
    agent: Any = Agent(on, tokens)
    return [
        agent.rollout_id_from_run(body),
        agent.url_path_for_run(path, body),
        agent.base_url_for_run(base_url, body),
    ]


def of_request(path: str, scope: dict[str, Any] | None) -> Any:
    agent: Any = Agent(True, False)
    request = None if scope is None else Request({**scope, "headers": [], "query_string": b""})
    return agent.url_path_for_request(path, request)


def resolved(configuration: dict[str, Any], name: str, rollout_id: Any, tokens: bool) -> Any:
    agent: Any = Agent(True, tokens, configuration)
    return agent.resolve_model_base_url(name, rollout_id)


def available(directory: str, rollout_id: str) -> list[Any]:
    records, invalid = read_available_model_call_records(CaptureStore(directory), rollout_id)
    return [[one.model_dump(mode="json") for one in records], invalid]


ANSWERS: dict[str, Callable[..., Any]] = {
    "id": maybe_rollout_id_from_run_body,
    "prefix": lambda rollout_id, tokens: rollout_path_prefix(rollout_id, token_capture=tokens),
    "apply": lambda url, rollout_id, tokens: apply_rollout_prefix(
        url, rollout_id, token_capture=tokens
    ),
    "run": of_run,
    "request": of_request,
    "resolve": resolved,
    "record": lambda raw: build_model_call_record(raw, call_index=3).model_dump(mode="json"),
    "aggregate": lambda lines: aggregate_model_call_records(
        [build_model_call_record(raw, call_index=number) for number, raw in enumerate(lines)]
    ),
    "strict": lambda directory, rollout_id: [
        one.model_dump(mode="json")
        for one in read_model_call_records(CaptureStore(directory), rollout_id)
    ],
    "available": available,
    "metrics": lambda directory, rollout_id: aggregate_model_call_metrics(
        CaptureStore(directory), rollout_id
    ),
    "merge": lambda row, directory: merge_model_call_capture_into_record(row, [Path(directory)]),
}


def main() -> None:
    for line in sys.stdin:
        function, arguments = json.loads(line)
        try:
            answer: dict[str, Any] = {"value": ANSWERS[function](*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


main()
