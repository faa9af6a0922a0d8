"""The call's span as the current OpenTelemetry context of the application below, so that whatever it records nests under it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from otel_gym.capture.current import current_call
from otel_gym.tracing.context import call_context


class TraceContext:
    """ASGI middleware between capture and the application; only mounted where capture is on."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = current_call() if scope["type"] == "http" else None
        if call is None:
            await self.app(scope, receive, send)
            return
        with call_context(call):
            await self.app(scope, receive, send)
