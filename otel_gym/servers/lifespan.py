"""Closing what a server holds when it shuts down, whatever application it wraps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class LifespanClose:
    """ASGI middleware that calls `close` after the application below has shut down, before the server is told so."""

    def __init__(self, app: ASGIApp, close: Callable[[], Awaitable[None]]) -> None:
        self.app = app
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return

        async def closing(message: Message) -> None:
            if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                await self._close()
            await send(message)

        await self.app(scope, receive, closing)
