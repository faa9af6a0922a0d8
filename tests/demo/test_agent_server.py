"""The demo's agent server, without the demo's model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from otel_gym.demo.agent_server import ScriptedAgentServer
from otel_gym.rollouts import ATTACHMENT_KEY, CollectOptions, collect_rollouts
from otel_gym.servers.model import build_model_server
from otel_gym.settings import ModelServerSettings, Settings, settings_from
from tests.engines.serving import Served
from tests.rollouts.echo_engine import EchoEngine, Fail


@contextmanager
def _model_server(directory: Path, fail: Fail | None = None) -> Iterator[Settings]:
    raw = {"observability_enabled": True, "model_call_capture_dir": str(directory)}
    with Served(EchoEngine(fail), lifespan="off") as engine:
        server = ModelServerSettings(name="policy", base_url=engine.url)
        with Served(build_model_server(settings_from(raw), server), lifespan="on") as served:
            block = {"responses_api_models": {"vllm_model": {"port": served.port}}}
            yield settings_from({**raw, "policy": block})


async def test_a_rollout_of_every_dialect(tmp_path: Path) -> None:
    """Each task is played in the dialect of its index, some turns streamed, and every call is told, captured and attached."""
    told: list[None] = []
    with _model_server(tmp_path / "captures") as settings:
        agent = ScriptedAgentServer(settings, on_call=lambda: told.append(None))
        with Served(agent) as served:
            options = CollectOptions(served.url, tmp_path / "out.jsonl")
            collected = await collect_rollouts(settings, [{"turns": 2}] * 3, options)
    assert collected.whole and len(told) == 6
    rows = [orjson.loads(line) for line in collected.output.read_bytes().splitlines()]
    played = {
        row["_ng_task_index"]: {call["dialect"] for call in row[ATTACHMENT_KEY]["calls"]}
        for row in rows
    }
    assert played == {0: {"responses"}, 1: {"chat"}, 2: {"messages"}}
    for row in rows:
        calls = row[ATTACHMENT_KEY]["calls"]
        assert sorted(call["streamed"] for call in calls) == [False, True]
        assert "gaps" not in row[ATTACHMENT_KEY]
        assert row["agent_ref"]["name"] == "scripted_agent"


async def test_a_failing_engine_fails_the_rollout(tmp_path: Path) -> None:
    """What the SDK raises in the end is the rollout's failure, with the exception's name."""
    problems: list[str] = []
    with (
        _model_server(tmp_path / "captures", lambda request, number: 400) as settings,
        Served(ScriptedAgentServer(settings, on_call=lambda: None)) as served,
    ):
        options = CollectOptions(served.url, tmp_path / "out.jsonl")
        collected = await collect_rollouts(
            settings, [{"turns": 1}], options, on_problem=problems.append
        )
    assert collected.failed == 1
    assert "BadRequestError" in problems[0]
