"""The connections to one engine: raw bytes both ways, nothing added, nothing decoded, nothing remembered between callers."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Final
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from otel_gym.counters import count
from otel_gym.errors import SettingsError
from otel_gym.servers.connections import Connections, EngineResponse, Lost
from otel_gym.servers.headers import Headers
from otel_gym.servers.refusal import ENGINE_UNREACHABLE, Refusal

CONNECT_TIMEOUT_S: Final = 10.0
IDLE_S: Final = 2.0
"""How long an idle connection is kept. uvicorn, llama.cpp and Node close theirs after 5 s; a request must not meet that moment."""
IDLE_TLS_S: Final = 30.0
"""The same for https, where a new connection is dear and hosted APIs keep theirs for a minute or more."""

MAX_ATTEMPTS: Final = 4


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request as the engine gets it."""

    method: str
    target: bytes
    """Path and query as they go on the request line, escapes untouched."""
    headers: Headers
    body: bytes | AsyncIterable[bytes] | None
    """Whole body, or its parts as they come, or null where there is none."""


class Upstream:
    """A pool of connections to the engine at `engine_url` (without /v1). Raises `SettingsError` for a URL that is none."""

    def __init__(self, engine_url: str) -> None:
        try:
            self._url = httpx.URL(engine_url)
        except httpx.InvalidURL as error:
            raise SettingsError(f"engine {engine_url!r}: {error}") from None
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise SettingsError(
                f"engine {engine_url!r}: must be a URL such as http://127.0.0.1:8000"
            )
        self.engine_url = engine_url
        self._base = self._url.raw_path.rstrip(b"/")
        # Bare connections, not a client: a client would add headers, follow redirects and keep cookies across rollouts.
        self._connections = Connections(
            self._url,
            idle_s=IDLE_TLS_S if self._url.scheme == "https" else IDLE_S,
            proxy=_proxy_for(self._url),
        )

    async def open(self, request: EngineRequest) -> EngineResponse:
        """Send `request`; returns when the answer's headers are there, its body unread.

        There is no limit on how long the engine may think. Raises `Refusal` where it cannot be reached or breaks off before an answer. A request is sent
        again only where an idle connection had been closed before a byte of it arrived. The caller closes the response.
        """
        headers = [(b"host", self._url.netloc), *request.headers]
        if isinstance(request.body, bytes):
            headers.append((b"content-length", str(len(request.body)).encode()))
        elif request.body is not None and not any(k == b"content-length" for k, _ in headers):
            headers.append((b"transfer-encoding", b"chunked"))
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                return await self._connections.send(self._request(request, headers))
            except Lost as lost:
                is_whole = isinstance(request.body, bytes | None)
                if lost.was_never_seen and is_whole and attempt < MAX_ATTEMPTS:
                    count("engine.stale_connections")
                    continue
                raise Refusal(
                    ENGINE_UNREACHABLE,
                    f"the engine at {self.display_url} gave no answer: {_reason(lost.error)}",
                ) from lost.error
        raise AssertionError("unreachable")

    def _request(self, request: EngineRequest, headers: Headers) -> httpcore.Request:
        url = httpcore.URL(
            scheme=self._url.raw_scheme,
            host=self._url.raw_host,
            port=self._url.port,
            target=self._base + request.target,
        )
        return httpcore.Request(
            request.method.encode(),
            url,
            headers=headers,
            content=_content(request.body),
            extensions={"timeout": {"connect": CONNECT_TIMEOUT_S}},
        )

    @property
    def display_url(self) -> str:
        """The engine's URL without user name and password."""
        return str(self._url.copy_with(userinfo=b"")).rstrip("/")

    async def aclose(self) -> None:
        """Close all connections; calls in flight are broken off."""
        await self._connections.aclose()


class OneBody:
    """A request body that is there, as `httpcore` wants it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._body:
            yield self._body


def _content(body: bytes | AsyncIterable[bytes] | None) -> AsyncIterable[bytes]:
    return OneBody(body or b"") if isinstance(body, bytes | None) else body


def _reason(error: BaseException) -> str:
    """The operating system's word for what went wrong where it has one (`Connection refused`), else the error's own."""
    cause: BaseException | None = error
    while cause is not None:
        nested = cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        for found in (cause, *nested):
            if isinstance(found, ssl.SSLError):
                # Its errno is OpenSSL's, not the operating system's.
                return str(found)
            if isinstance(found, OSError) and found.errno is not None and found.errno > 0:
                return os.strerror(found.errno)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _proxy_for(url: httpx.URL) -> str | None:
    """The environment's proxy for the engine; loopback is never proxied."""
    if url.host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(url.host):
        return None
    proxies = getproxies()
    return proxies.get(url.scheme) or proxies.get("all")
