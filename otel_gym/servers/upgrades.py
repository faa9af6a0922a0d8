"""WebSocket upgrades are refused with 426, at which clients that try one first fall back to POST at once."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from otel_gym.counters import count

_BODY: Final = b'{"error":{"type":"upgrade_refused","message":"WebSocket is not supported here; use HTTP POST."}}'
_HEADERS: Final = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(_BODY)).encode()),
    (b"connection", b"close"),
]


class UpgradeGuard:
    """ASGI middleware that answers every WebSocket upgrade with 426 Upgrade Required (RFC 9110 15.5.22)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "websocket":
            await self._refuse(scope, receive, send, "websocket.http.response")
        elif kind == "http" and scope["method"] == "GET" and _wants_websocket(scope):
            await self._refuse(scope, receive, send, "http.response")
        else:
            await self.app(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, message: str) -> None:
        count("calls.websocket_refused")
        if scope["type"] == "websocket":
            await receive()
            if "websocket.http.response" not in scope.get("extensions", {}):
                await send({"type": "websocket.close", "code": 1002})
                return
        await send({"type": f"{message}.start", "status": 426, "headers": _HEADERS})
        await send({"type": f"{message}.body", "body": _BODY})


def _wants_websocket(scope: Scope) -> bool:
    return any(
        name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"]
    )
