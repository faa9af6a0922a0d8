"""Runs the viewer on a socket of its own."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

import uvicorn

from otel_gym.errors import UsageProblem
from otel_gym.viewer.app import create_app
from otel_gym.viewer.options import ViewerOptions


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `UsageProblem` where that address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageProblem(
            f"--host {host}: is no address of this machine: {error.strerror}"
        ) from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        found.close()
        raise UsageProblem(
            f"{host}:{port}: cannot be listened on: {error.strerror}; choose another with --port"
        ) from None
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(options: ViewerOptions, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until interrupted; `ready` is called once requests are answered."""
    config = uvicorn.Config(
        create_app(options),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=2,
        lifespan="on",
    )
    _Server(config, ready).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()
