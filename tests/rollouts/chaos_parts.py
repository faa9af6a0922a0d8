"""Processes of the chaos test: `python -m tests.rollouts.chaos_parts engine` and `... agent CONFIG`.

Which calls and rollouts fail follows from their ids, so that every attempt throws its own dice and a run can be repeated.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp

from otel_gym.servers.listening import Listener
from otel_gym.settings import load_settings
from tests.rollouts.agents import CallingAgent
from tests.rollouts.echo_engine import EchoEngine, last_text

CALLS = 4
ONE_IN = 20


def strikes(what: str, text: str) -> bool:
    """Whether `what` befalls `text`: one in twenty."""
    return zlib.crc32(f"{what} {text}".encode()) % ONE_IN == 0


class CrashingAgent(CallingAgent):
    """Crashes in one rollout of twenty: by an exception, or by a connection that breaks in the middle of the result."""

    async def run(self, request: Request, body: dict[str, Any]) -> Any:
        rollout_id = str(self.rollout_id_from_run(body))
        crashes = strikes("agent", rollout_id)
        result = await super().run(request, {**body, "calls": CALLS // 2 if crashes else CALLS})
        if not crashes:
            return result
        if zlib.crc32(rollout_id.encode()) % 2:
            raise RuntimeError("the agent crashed")

        async def broken() -> AsyncIterator[bytes]:
            yield b'{"reward": '
            raise ConnectionResetError("the agent died")

        return StreamingResponse(broken(), media_type="application/json")


def main() -> None:
    """Serve the part argv[1] on a free port and print its URL."""
    app: ASGIApp
    if sys.argv[1] == "engine":
        app = EchoEngine(lambda request, _: 500 if strikes("engine", last_text(request)) else None)
    else:
        app = CrashingAgent(load_settings(Path(sys.argv[2])))
    listener = Listener("127.0.0.1", 0)
    sys.stdout.write(f"{listener.url}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="critical", access_log=False, ws="none")
    uvicorn.Server(config).run(sockets=[listener.socket])


if __name__ == "__main__":
    main()
