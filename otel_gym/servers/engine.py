"""The engine behind a model server: every path and method is forwarded, bytes untouched, streams as they come."""

from __future__ import annotations

import asyncio
from typing import Final

import orjson
from starlette.types import Receive, Scope, Send

from otel_gym.errors import SettingsError
from otel_gym.servers.forward import Forwarding
from otel_gym.servers.outbound import EngineExit
from otel_gym.servers.refusal import send_json
from otel_gym.settings import ModelServerSettings

SAMPLING_PATH: Final = "/otel-gym/sampling"
"""GET answers with the sampling profile that this server enforces; the only path that is not the engine's."""


CLOSE_TIMEOUT_S: Final = 2.0
"""How long a closing server waits for calls that it broke off; they are recorded in that time."""


class EngineForwarder:
    """ASGI application that is the engine of `server`, seen through otel-gym.

    A client that goes away cancels its engine call at once. An engine that cannot be reached is a 502 in the caller's dialect; one that is lost in the middle of an
    answer breaks the caller's connection off, as it would have without us. Raises `SettingsError` where the engine's URL or a sampling pin is wrong.
    """

    def __init__(self, server: ModelServerSettings, *, request_stream_usage: bool = False) -> None:
        if server.engine_url is None:
            raise SettingsError(f"{server.name}: no engine; give --engine URL or the key base_url")
        self.exit = EngineExit(server, request_stream_usage=request_stream_usage)
        self._in_flight: set[asyncio.Task[object]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            if scope["path"] == SAMPLING_PATH and scope["method"] == "GET":
                await send_json(send, 200, orjson.dumps(self.exit.sampling_profile()))
            else:
                self._note_in_flight()
                await Forwarding(self.exit, scope, receive, send).run()
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1002})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _note_in_flight(self) -> None:
        task = asyncio.current_task()
        if task is not None and task not in self._in_flight:
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)

    async def aclose(self) -> None:
        """Break off the calls that are still in flight, wait until they have ended, and close the connections. Safe to call again."""
        tasks = self._in_flight - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
        await self.exit.aclose()
