"""Redirects of a prefixed call keep the prefix, so that the call which follows is still the rollout's."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit, urlunsplit

from starlette.types import Message, Scope, Send

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class PrefixedLocation:
    """Puts the prefix back into a redirect to the request's own path, such as one that adds or drops a trailing slash."""

    def __init__(self, prefix: str, scope: Scope) -> None:
        self._prefix = prefix
        self._mount: str = scope.get("root_path", "") or ""
        self._path: str = scope["path"].rstrip("/")

    def __call__(self, message: Message) -> Message:
        """`message`, a response start, with its Location mended where that is needed."""
        if message["status"] not in REDIRECTS:
            return message
        headers = [
            (name, self._mended(value) if name.lower() == b"location" else value)
            for name, value in message.get("headers", ())
        ]
        return {**message, "headers": headers}

    def sending(self, send: Send) -> Send:
        """`send` with mended redirects."""

        async def forward(message: Message) -> None:
            await send(self(message) if message["type"] == "http.response.start" else message)

        return forward

    def _mended(self, location: bytes) -> bytes:
        parts = urlsplit(location.decode("latin-1"))
        if parts.path.rstrip("/") != self._path:
            return location
        mount = self._mount if parts.path.startswith(self._mount + "/") else ""
        path = mount + self._prefix + parts.path[len(mount) :]
        return urlunsplit(parts._replace(path=path)).encode("latin-1")
