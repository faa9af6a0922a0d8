"""The connections to one engine: those in use, and the idle ones, last used on top. Taking and giving back costs the same for one as for a thousand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import httpcore
import httpx

from otel_gym.servers.headers import Headers
from otel_gym.servers.wire import Wire, WireNetwork

TRANSPORT_ERRORS: Final = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.ProxyError,
    httpcore.ConnectionNotAvailable,
)
"""What can go wrong between us and the engine."""


@dataclass(slots=True)
class _Idle:
    connection: httpcore.AsyncConnectionInterface
    wire: Wire | None
    """Null where a library holds the socket (behind a proxy)."""
    since: float


class EngineResponse:
    """An answer whose headers are there and whose body is not read yet; close it in any case."""

    __slots__ = ("_connection", "_connections", "_is_closed", "_response", "_wire")

    def __init__(
        self,
        connections: Connections,
        connection: httpcore.AsyncConnectionInterface,
        response: httpcore.Response,
        wire: Wire | None,
    ) -> None:
        self._connections = connections
        self._connection = connection
        self._response = response
        self._wire = wire
        self._is_closed = False

    @property
    def status_code(self) -> int:
        """HTTP status."""
        return self._response.status

    @property
    def headers(self) -> Headers:
        """Header fields as they came."""
        return self._response.headers

    def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes, encodings untouched. Raises `TRANSPORT_ERRORS`."""
        return self._response.aiter_stream()

    async def read(self) -> bytes:
        """The whole body. Raises `TRANSPORT_ERRORS`."""
        return b"".join([part async for part in self.parts()])

    async def aclose(self) -> None:
        """Gives the connection back where the answer was read whole, else closes it. Safe to call again."""
        if not self._is_closed:
            self._is_closed = True
            try:
                await self._response.aclose()
            finally:
                self._connections._give_back(self._connection, self._wire)


class Lost(Exception):
    """No answer came; `was_never_seen` says that nobody at the engine can have seen the request."""

    def __init__(self, error: Exception, *, was_never_seen: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.was_never_seen = was_never_seen


class Connections:
    """Connections to the origin of `url`, through `proxy` where there is one; an idle one is kept for `idle_s`. Belongs to one event loop."""

    def __init__(self, url: httpx.URL, *, idle_s: float, proxy: str | None) -> None:
        self._origin = httpcore.Origin(
            url.raw_scheme, url.raw_host, url.port or {"https": 443}.get(url.scheme, 80)
        )
        self._idle_s = idle_s
        self._factory = _factory(url, idle_s, proxy)
        self._idle: deque[_Idle] = deque()
        self._busy: set[httpcore.AsyncConnectionInterface] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, request: httpcore.Request) -> EngineResponse:
        """Sends `request` on an idle connection, or on a new one. Raises `Lost`."""
        connection, wire = self._take()
        is_used = connection is not None
        if connection is None:
            connection = self._factory.create_connection(self._origin)
        elif wire is not None:
            wire.begin_request()
        self._busy.add(connection)
        try:
            response = await connection.handle_async_request(request)
        except TRANSPORT_ERRORS as error:
            never_seen = is_used and wire is not None and wire.took_nothing()
            self._busy.discard(connection)
            raise Lost(error, was_never_seen=never_seen) from error
        except BaseException:
            self._busy.discard(connection)
            raise
        stream = response.extensions.get("network_stream")
        found = stream.get_extra_info("wire") if stream is not None else None
        return EngineResponse(self, connection, response, found)

    async def aclose(self) -> None:
        """Closes all connections; calls in flight are broken off."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        connections = [one.connection for one in self._idle] + list(self._busy)
        self._idle.clear()
        self._busy.clear()
        for connection in connections:
            await connection.aclose()

    def _take(self) -> tuple[httpcore.AsyncConnectionInterface | None, Wire | None]:
        """The idle connection that was used last and that the engine has not closed; null without one."""
        while self._idle:
            idle = self._idle.pop()
            connection = idle.connection
            if connection.is_idle() and not connection.has_expired():
                return connection, idle.wire
            self._close(connection)
        return None, None

    def _give_back(self, connection: httpcore.AsyncConnectionInterface, wire: Wire | None) -> None:
        if connection not in self._busy:
            return
        self._busy.discard(connection)
        if not connection.is_idle():
            return
        loop = asyncio.get_running_loop()
        self._idle.append(_Idle(connection, wire, loop.time()))
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_s, self._sweep_idle)

    def _sweep_idle(self) -> None:
        """Closes what was idle for too long, also where no request comes any more."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._idle_s
        while self._idle and self._idle[0].since <= oldest:
            self._close(self._idle.popleft().connection)
        self._sweep = None
        if self._idle:
            due = self._idle[0].since + self._idle_s
            self._sweep = loop.call_at(due, self._sweep_idle)

    def _close(self, connection: httpcore.AsyncConnectionInterface) -> None:
        task = asyncio.ensure_future(connection.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled():
            task.exception()  # whatever it was, the connection is gone


def _factory(url: httpx.URL, idle_s: float, proxy: str | None) -> httpcore.AsyncConnectionPool:
    """What makes connections; as a pool it is never used, since its work for each request grows with the square of their number."""
    context = httpx.create_ssl_context() if url.scheme == "https" or proxy else None
    if proxy is None:
        return httpcore.AsyncConnectionPool(
            ssl_context=context, keepalive_expiry=idle_s, network_backend=WireNetwork()
        )
    through = httpx.Proxy(proxy)
    address = httpcore.URL(
        scheme=through.url.raw_scheme,
        host=through.url.raw_host,
        port=through.url.port,
        target=through.url.raw_path,
    )
    if through.url.scheme in ("socks5", "socks5h"):
        return httpcore.AsyncSOCKSProxy(
            proxy_url=address,
            proxy_auth=through.raw_auth,
            ssl_context=context,
            keepalive_expiry=idle_s,
        )
    return httpcore.AsyncHTTPProxy(
        proxy_url=address,
        proxy_auth=through.raw_auth,
        proxy_headers=through.headers.raw,
        ssl_context=context,
        proxy_ssl_context=through.ssl_context,
        keepalive_expiry=idle_s,
    )
