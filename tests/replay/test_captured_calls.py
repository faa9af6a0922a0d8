"""From a policy call through our own capture to the record and back: the same turn."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from otel_gym import install_model_call_capture, read_model_call_records
from otel_gym.capture.store import CaptureStore
from otel_gym.replay import PolicyClient, capture_turn, project
from tests.replay.samples import BUNDLE, SCOPE, call, message, reasoning, response, same_json

OUTPUT = [reasoning(), message("a"), call(**BUNDLE, routed_experts=[[[1, 255]], [[-1, 7]]])]


async def answer(request: Request) -> JSONResponse:
    await request.body()
    return JSONResponse(response(*OUTPUT))


async def test_the_record_of_a_call_holds_the_turn(tmp_path: Path) -> None:
    """A captured call's record makes the very turn that the client got, and the next request is recorded exactly."""
    app = Starlette(routes=[Route("/v1/responses", answer, methods=["POST"])])
    settings: dict[str, Any] = {
        "observability_enabled": True,
        "model_call_capture_dir": str(tmp_path),
    }
    install_model_call_capture(app, settings, model_server_name=SCOPE.server_name)
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none")
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    async with PolicyClient(url, "alias", SCOPE, 2, rollout_id="t-0") as policy:
        first = (await policy.call([{"role": "user", "content": "hi"}])).turn
        output = {"role": "tool", "tool_call_id": "call_1", "content": "4"}
        await policy.call([{"role": "user", "content": "hi"}, first, output])
    server.should_exit = True
    await serving
    records = read_model_call_records(CaptureStore(tmp_path), "t-0")
    assert [capture_turn(record, SCOPE) for record in records] == list(policy.turns)
    request = records[1].request
    assert request is not None
    assert same_json(request["input"][1:4], OUTPUT)
    assert same_json(json.loads(project([first], SCOPE).to_json()), OUTPUT)
    assert policy.gaps == set()
