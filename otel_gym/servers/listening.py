"""A model server's process: the socket, uvicorn as we need it, and an orderly end."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from otel_gym.errors import UsageProblem
from otel_gym.servers.file_limit import raise_file_limit
from otel_gym.servers.refusal import EngineConnectionLost
from otel_gym.servers.wire import KEEP_ALIVE_OPTIONS

BACKLOG: Final = 4096
KEEP_ALIVE_S: Final = 75
"""Longer than clients keep idle connections (the Python SDKs: 5 s), so that none is closed under a request that is on its way."""


SWITCH_INTERVAL_S: Final = 0.001
"""How long a thread of a model server's process may keep the interpreter to itself. The event loop and the writer take turns; at the interpreter's
own 5 ms they wait for each other longer than they work (`benchmarks/capture.py` shows both)."""


COLLECT_AFTER: Final = (20_000, 50, 100)
"""New objects, young and middle collections after which the interpreter looks for garbage in cycles. Each call makes a few hundred objects and hardly a
cycle; at the interpreter's own (700, 10, 10) a tenth of a server's time goes into looking through calls in flight."""


def tune_interpreter() -> None:
    """Set what suits a process that serves and writes at once; only for processes that are ours."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*COLLECT_AFTER)
    gc.freeze()  # modules, classes and settings stay as long as the process: no collection needs to look at them


class Listener:
    """A bound socket on `host` and `port` (0: a free one). Raises `UsageProblem` where that address cannot be had."""

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self.socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise UsageProblem(
                f"cannot listen on {host} port {port}: {os.strerror(error.errno) if error.errno else error}; choose another --port, or 0 for a free one"
            ) from None
        # asyncio does this only for sockets that it made; without it a stream's small chunks wait 40 ms for each other.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Accepted sockets inherit these: a client whose host is gone must not keep its call going.
        for option in KEEP_ALIVE_OPTIONS:
            self.socket.setsockopt(*option)
        self.port: int = self.socket.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._on_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            await self._on_started()


def serve(
    app: ASGIApp,
    listener: Listener,
    *,
    started: Callable[[], Awaitable[None]],
    shutdown_timeout_s: float,
) -> None:
    """Serve `app` until SIGTERM or SIGINT; `started` runs once requests are answered.

    At the end no new call is taken, calls in flight may go on for `shutdown_timeout_s`, what is left is cancelled, and the application shuts down.
    """
    raise_file_limit()
    tune_interpreter()
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=KEEP_ALIVE_S,
        # uvicorn's annotation says int; it hands the value to asyncio.wait_for.
        timeout_graceful_shutdown=shutdown_timeout_s,  # type: ignore[arg-type]
        backlog=BACKLOG,
    )
    logging.getLogger("uvicorn.error").addFilter(_said_already)
    # uvicorn ends gracefully and then raises the signal again, for the handlers it found; ours let the process end well.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    _Server(config, started).run(sockets=[listener.socket])


def _said_already(record: logging.LogRecord) -> bool:
    """Whether uvicorn's message is news: a lost engine was logged where it was noticed."""
    return not (record.exc_info and isinstance(record.exc_info[1], EngineConnectionLost))
