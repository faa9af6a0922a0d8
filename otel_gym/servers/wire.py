"""One connection's bytes on asyncio, as `httpcore` wants a network: plain or TLS, no limit on time but for connecting.

It knows what a general client does not: whether the other end's kernel took any byte of what was sent last, and that an answer came before the request was
taken whole.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import struct
from collections.abc import Iterable
from typing import Any, Final

import httpcore

BUFFER_MAX_BYTES: Final = 256 * 1024
"""Bytes kept of an answer that is not read; beyond it the engine has to wait."""

KEEP_ALIVE_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 8),
)
"""A call may be silent for an hour. The kernel asks every minute whether the other end is still there, which also keeps its place in a NAT's table; a host
that is gone ends the call after three minutes."""

_BYTES_ACKED_AT: Final = 120
"""Offset of `tcpi_bytes_acked` in Linux's `struct tcp_info`."""
_TCP_INFO_BYTES: Final = 128


class Wire(asyncio.Protocol):
    """What arrives on one connection, and how it ended."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._drain: asyncio.Future[None] | None = None
        self._transport: Any = None
        self.is_at_end = False
        self.error: Exception | None = None
        self._acked_before = 0
        self._acked_at_end: int | None = None

    # -- told by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > BUFFER_MAX_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake(self._waiter)
        if self._is_refusal():
            self._wake(self._drain)

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self._end()

    def pause_writing(self) -> None:
        self._drain = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        self._wake(self._drain)
        self._drain = None

    # -- asked by the stream

    async def read(self) -> bytes:
        """All that has come, once something has; empty at the end. Raises the error that ended the connection."""
        while not self._parts:
            if self.error is not None:
                raise self.error
            if self.is_at_end:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Sends `data`; returns when there is room for more. Raises `OSError` where nobody takes it any more."""
        if self.is_at_end or self._transport.is_closing():
            raise self.error or ConnectionResetError("the other end has closed the connection")
        self._transport.write(data)
        if self._drain is not None and not self._is_refusal():
            await asyncio.shield(self._drain)
        if self._drain is not None and self._is_refusal():
            raise ConnectionAbortedError("an answer came before the request was taken")
        if self.error is not None:
            raise self.error

    def begin_request(self) -> None:
        """Notes how much the other end has taken before the next request."""
        self._acked_before = self._acked() or 0
        self._acked_at_end = self._acked_before if self.is_at_end else None

    def took_nothing(self) -> bool:
        """Whether the connection ended before the other end's kernel had taken a single byte of the request: nobody can have seen it.

        A process that read from a connection and then closed it has acknowledged what it read no later than with its last segment.
        """
        return self._acked_at_end is not None and self._acked_at_end == self._acked_before

    def is_readable(self) -> bool:
        """Whether bytes or an end are there, those included that the event loop has not seen yet."""
        if self._parts or self.is_at_end:
            return True
        descriptor = self._descriptor()
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Closes at once; what was not sent is dropped."""
        self._transport.abort()

    def _descriptor(self) -> int:
        found = self._transport.get_extra_info("socket")
        return -1 if found is None else found.fileno()

    def _acked(self) -> int | None:
        """Bytes that the other end's kernel has acknowledged on this connection, null where that cannot be known."""
        found = self._transport.get_extra_info("socket")
        try:
            info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            acked: int = struct.unpack_from("=Q", info, _BYTES_ACKED_AT)[0]
        except (OSError, AttributeError, struct.error):
            return None
        return acked

    def _is_refusal(self) -> bool:
        """Whether an answer of 400 or above has begun: then nobody wants the rest of the request."""
        head = self._parts[0] if self._parts else b""
        return head[:7] == b"HTTP/1." and head[9:10] in (b"4", b"5")

    def _end(self) -> None:
        if not self.is_at_end:
            self.is_at_end = True
            self._acked_at_end = self._acked()
        self._wake(self._waiter)
        self._wake(self._drain)

    @staticmethod
    def _wake(future: asyncio.Future[None] | None) -> None:
        if future is not None and not future.done():
            future.set_result(None)


class WireStream(httpcore.AsyncNetworkStream):
    """A connection as `httpcore` uses it."""

    def __init__(self, transport: Any, wire: Wire) -> None:
        self._transport = transport
        self.wire = wire

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's signature
        try:
            return await self.wire.read()
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's signature
        if buffer:
            try:
                await self.wire.write(buffer)
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        if self._transport.get_extra_info("ssl_object") is not None:
            # Room for TLS to say good-bye; nobody waits for the answer to that.
            self._transport.close()
            await asyncio.sleep(0)
        self.wire.close()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
    ) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        wire = Wire()
        try:
            async with asyncio.timeout(timeout):
                transport = await loop.start_tls(
                    self._transport, wire, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            self.wire.close()
            raise httpcore.ConnectTimeout("TLS was not agreed in time") from error
        except (OSError, ssl.SSLError) as error:
            self.wire.close()
            raise httpcore.ConnectError(str(error)) from error
        except BaseException:
            self.wire.close()
            raise
        wire.connection_made(transport)  # type: ignore[arg-type] # start_tls gives the transport or raises
        return WireStream(transport, wire)

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self.wire.is_readable()
        if info == "ssl_object":
            return self._transport.get_extra_info("ssl_object")
        if info == "wire":
            return self.wire
        return None


class WireNetwork(httpcore.AsyncNetworkBackend):
    """Opens connections."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                transport, wire = await loop.create_connection(
                    Wire, host, port, happy_eyeballs_delay=0.25
                )
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"no connection within {timeout} s") from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        found = transport.get_extra_info("socket")
        for option in KEEP_ALIVE_OPTIONS:
            found.setsockopt(*option)
        return WireStream(transport, wire)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
