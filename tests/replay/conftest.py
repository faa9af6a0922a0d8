"""A policy server on loopback that answers what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from tests.replay.serving import PolicyServer


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
