"""A real NOOA agent: snapshotted, restored in a new process, its next request carries the exact items."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from otel_gym.replay.gaps import PUBLIC_ASSISTANT
from tests.replay.other_python import environment
from tests.replay.samples import call, message, reasoning, response, same_json
from tests.replay.serving import PolicyServer

ROOT = Path(__file__).resolve().parents[2]
EXPERTS = [[[1, 2], [3, 255]], [[4, 5], [6, 7]]]


def bundle(start: int) -> dict[str, Any]:
    return {
        "prompt_token_ids": list(range(start, start + 40)),
        "generation_token_ids": [start, start + 1],
        "generation_log_probs": [-0.25, -5e-324],
        "routed_experts": EXPERTS,
    }


def step(call_id: str, code: str, start: int) -> dict[str, Any]:
    """A response that reasons, says something and runs code, with training arrays."""
    arguments = json.dumps({"code": code}, separators=(",", ":"))
    action = call(arguments, name="execute_python", call_id=call_id, **bundle(start))
    return response(reasoning("think", encrypted_content="abc"), message("computing"), action)


FIRST = [step("call_1", "x = 6 * 7\nprint(x)", 100), step("call_2", "return_result(str(x))", 200)]
AGAIN = step("call_3", "return_result('again')", 300)


@pytest.fixture(scope="module")
def nooa_python() -> Path:
    return environment("nooa")


async def run_agent(python: Path, mode: str, url: str, folder: Path) -> dict[str, Any]:
    """Run the agent in a process of its own and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        str(python),
        "-m",
        "tests.replay.nooa_agent",
        mode,
        url,
        str(folder),
        cwd=ROOT,
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-2000:]
    told: dict[str, Any] = json.loads(out.decode().splitlines()[-1])
    return told


def carried(request: dict[str, Any], items: list[Any]) -> bool:
    """Whether the request's input holds these items, next to each other and exactly."""
    sent = request["input"]
    places = range(len(sent) - len(items) + 1)
    return any(same_json(sent[place : place + len(items)], items) for place in places)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_restored_agent_replays_exactly(
    policy_server: PolicyServer, nooa_python: Path, tmp_path: Path
) -> None:
    """From JSON and from NOOA's SQLite store, in new processes, every earlier turn goes out as it came."""
    policy_server.answers = [response(message('{"value": 6}')), *FIRST, AGAIN, AGAIN]
    told = await run_agent(nooa_python, "first", policy_server.url, tmp_path)
    assert told["answer"] == "42"
    assert told["asked"] == 6
    assert told["calls"] == 3
    # NOOA writes a call of its own into the history; that, and nothing else, is a gap.
    assert told["gaps"] == [PUBLIC_ASSISTANT]
    path, second = policy_server.requests[2]
    assert path == "/ng-rollout/t-0/v1/responses"
    assert carried(second, FIRST[0]["output"])
    for mode in ("json", "sqlite"):
        told = await run_agent(nooa_python, mode, policy_server.url, tmp_path)
        assert told == {
            "asked": None, "answer": "again", "remembered": 42, "gaps": [PUBLIC_ASSISTANT], "calls": 1
        }  # fmt: skip
        _, request = policy_server.requests[-1]
        for earlier in FIRST:
            assert carried(request, earlier["output"]), mode
    assert policy_server.answers == []
