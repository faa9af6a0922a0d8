"""A policy server on loopback that answers what a test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


@dataclass
class PolicyServer:
    """`answers` are given in order, as an object, bytes, or a status; `requests` are what came in."""

    url: str = ""
    answers: list[Any] = field(default_factory=list)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        self.requests.append((request.url.path, json.loads(await request.body())))
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            return Response(b"{}", status_code=answer)
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            return Response(b"{}")
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return Response(content, media_type="application/json")


@pytest.fixture
async def policy_server() -> AsyncIterator[PolicyServer]:
    """A running policy server."""
    policy = PolicyServer()
    app = Starlette(routes=[Route("/{path:path}", policy.answer, methods=["POST"])])
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    policy.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    yield policy
    server.should_exit = True
    await serving
