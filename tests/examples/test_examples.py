"""Every example, played by `collect` against a loopback engine."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from otel_gym.capture.store import CaptureStore, read_model_call_records
from otel_gym.rollouts import ATTACHMENT_KEY, CollectOptions, collect_rollouts
from otel_gym.servers.model import build_model_server
from otel_gym.settings import ModelServerSettings, Settings, load_settings, settings_from
from tests.engines.serving import Served

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> ModuleType:
    """The example's module, from its file."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def adding_engine() -> Starlette:
    """A Responses engine that first asks for a sum and then says it."""

    async def responses(request: Request) -> JSONResponse:
        body = await request.json()
        results = [
            one["output"] for one in body["input"] if one.get("type") == "function_call_output"
        ]
        if results:
            part = {"type": "output_text", "text": f"It is {results[-1]}.", "annotations": []}
            item: dict[str, Any] = {"type": "message", "role": "assistant", "content": [part]}
        else:
            item = {"type": "function_call", "name": "add", "arguments": '{"a": 19, "b": 23}'}
            item["call_id"] = "call_1"
        output = [{**item, "id": "item_1", "status": "completed"}]
        answer = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed"}
        answer |= {"model": "policy", "output": output, "parallel_tool_calls": True, "tools": []}
        usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
        return JSONResponse({**answer, "tool_choice": "auto", "usage": usage})

    return Starlette(routes=[Route("/v1/responses", responses, methods=["POST"])])


@contextmanager
def model_server(directory: Path, engine: Any, **blocks: Any) -> Iterator[Settings]:
    """A capturing model server in front of `engine`; the settings of everybody around it."""
    raw: dict[str, Any] = {"observability_enabled": True, "model_call_capture_dir": str(directory)}
    with Served(engine) as engine_served:
        server = ModelServerSettings(name="policy", base_url=engine_served.url)
        with Served(build_model_server(settings_from(raw), server), lifespan="on") as served:
            raw["policy"] = {"responses_api_models": {"vllm_model": {"port": served.port}}}
            yield settings_from({**raw, **blocks})


async def _collect(
    settings: Settings, agent: Any, tasks: list[dict[str, Any]], output: Path
) -> list[dict[str, Any]]:
    with Served(agent) as served:
        options = CollectOptions(agent_url=served.url, output=output, num_repeats=2)
        collected = await collect_rollouts(settings, tasks, options)
    failures = collected.failures.read_text() if collected.failures.exists() else ""
    assert collected.whole, failures
    return [orjson.loads(line) for line in output.read_bytes().splitlines()]


async def test_tool_agent(tmp_path: Path) -> None:
    """The tool loop makes two calls per rollout, the first of which asks for the tool, and earns its reward."""
    module = example("tool_agent")
    with model_server(tmp_path / "captures", adding_engine()) as settings:
        agent = module.ToolAgent(settings)
        tasks = [{"question": "What is 19 + 23?", "expected": "42"}]
        rows = await _collect(settings, agent, tasks, tmp_path / "out.jsonl")
    for row in rows:
        assert (row["answer"], row["reward"]) == ("It is 42.", 1.0)
        attachment = row[ATTACHMENT_KEY]
        assert "gaps" not in attachment
        asked, answered = attachment["calls"]
        assert asked["tool_calls"][0]["name"] == "add"
        assert asked["tool_calls"][0]["arguments"] == {"a": 19, "b": 23}
        assert answered["tool_calls"] == []


def test_tool_agent_is_short() -> None:
    """The agent itself, imports included, stays within the forty lines that its page promises."""
    source = (EXAMPLES / "tool_agent.py").read_text()
    code = source.split('"""', 2)[2].partition("if __name__")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 40


SCRIPT = """
import os, sys, anthropic, openai
openai.OpenAI().responses.create(model="policy", input=[{"role": "user", "content": sys.argv[1]}])
print(os.environ["TRACEPARENT"], os.environ["HOME"])
sys.exit(int(sys.argv[2]))
"""


async def test_harness_agent(tmp_path: Path) -> None:
    """A subprocess that knows only the usual variables is captured under its rollout, and its exit code is the reward."""
    module = example("harness_agent")
    harness = {"command": [sys.executable, "-c", SCRIPT, "{prompt}", "0"]}
    block = {"responses_api_agents": {"harness": harness}}
    with model_server(tmp_path / "captures", adding_engine(), coder=block) as settings:
        agent = module.HarnessAgent(settings)
        rows = await _collect(settings, agent, [{"prompt": "{x}"}], tmp_path / "out.jsonl")
    assert {row[ATTACHMENT_KEY]["rollout_id"] for row in rows} == {"0-0", "0-1"}
    for row in rows:
        assert (row["exit_code"], row["reward"]) == (0, 1.0)
        [call] = row[ATTACHMENT_KEY]["calls"]
        assert call["trace_id"] in row["stdout"]
        assert not Path(row["stdout"].split()[-1]).exists()


async def test_harness_agent_ends_its_subprocess(tmp_path: Path) -> None:
    """A harness that takes too long is killed with everything it has started, and the rollout fails."""
    module = example("harness_agent")
    pid_file = tmp_path / "pid"
    script = (
        f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    harness = {"command": [sys.executable, "-c", script]}
    block = {"responses_api_agents": {"harness": {**harness, "timeout_s": 2.0}}}
    with model_server(tmp_path / "captures", adding_engine(), coder=block) as settings:
        agent = module.HarnessAgent(settings)
        with Served(agent) as served:
            options = CollectOptions(agent_url=served.url, output=tmp_path / "out.jsonl")
            problems: list[str] = []
            collected = await collect_rollouts(
                settings, [{"prompt": "x"}], options, on_problem=problems.append
            )
    assert collected.failed == 1 and "TimeoutError" in problems[0]
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
async def test_fastapi_model(tmp_path: Path, on: bool) -> None:
    """Somebody's own FastAPI server answers as before, and is captured exactly when observability is on."""
    directory = tmp_path / "captures"
    raw = {"observability_enabled": on, "model_call_capture_dir": str(directory)}
    app = example("fastapi_model").build(settings_from(raw))
    with Served(app, lifespan="on") as served:
        url = f"{served.url}/ng-rollout/0-0/v1"
        async with AsyncOpenAI(base_url=url, api_key="unused") as client:
            answer = await client.chat.completions.create(
                model="reverser", messages=[{"role": "user", "content": "abc"}]
            )
    assert answer.choices[0].message.content == "cba"
    if not on:
        assert not directory.exists()
        return
    [record] = read_model_call_records(CaptureStore(directory), "0-0")
    assert (record.model, record.tokens_in) == ("reverser", 3)
    assert record.model_ref is not None and record.model_ref.name == "reverser"


def test_configuration_and_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The configuration names all that its agents look for, and every task has what both agents read."""
    monkeypatch.setenv("PWD", str(tmp_path))
    settings = load_settings(EXAMPLES / "config.yaml")
    assert settings.model_call_capture_dir == tmp_path / "captures" / "examples"
    for name, agent_class in (("tool_agent", "ToolAgent"), ("harness_agent", "HarnessAgent")):
        agent = getattr(example(name), agent_class)(settings)
        assert agent.config, f"{agent.name} has no block"
        assert agent.model_server_url == "http://127.0.0.1:8000"
    tasks = [orjson.loads(line) for line in (EXAMPLES / "tasks.jsonl").read_bytes().splitlines()]
    assert all({"question", "expected", "prompt"} <= task.keys() for task in tasks)
