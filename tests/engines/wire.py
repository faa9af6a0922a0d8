"""A client that shows what really came over the wire: status, fields as sent, chunk boundaries, and whether the answer was complete."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import h11


@dataclass
class WireAnswer:
    """One answer as it stood on the wire."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    """The chunks of a chunked body; else the whole body as one."""
    complete: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


class WireClient:
    """One connection, one request; `start` sends it, `read` takes the answer, `close` hangs up at any time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = parts.netloc
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=60)
        # Head and body are sent apart; without this the body waits for the head's delayed acknowledgement.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 24)
        self.answer = WireAnswer()

    def start(
        self,
        method: str,
        target: str | bytes,
        body: bytes | None = None,
        headers: list[tuple[str, str]] | None = None,
    ) -> WireClient:
        """Send the whole request; no header is added but host and content-length."""
        fields = [("host", self._host), *(headers or [])]
        if body is not None:
            fields.append(("content-length", str(len(body))))
        self._send(h11.Request(method=method, target=target, headers=fields))
        if body:
            self._send(h11.Data(body))
        self._send(h11.EndOfMessage())
        return self

    def _send(self, event: h11.Event) -> None:
        # The answer may be there, and the connection closed, before the whole request was taken.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(self._h11.send(event) or b"")

    def read(self, chunks: int | None = None) -> WireAnswer:
        """Read the answer to its end, or until `chunks` chunks are there."""
        answer = self.answer
        begun = False
        while chunks is None or len(answer.chunks) < chunks:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError:
                return answer
            if event is h11.NEED_DATA:
                try:
                    self._h11.receive_data(self._socket.recv(65536))
                except ConnectionError:
                    return answer
            elif isinstance(event, h11.InformationalResponse):
                continue
            elif isinstance(event, h11.Response):
                answer.status = event.status_code
                answer.headers = list(event.headers)
            elif isinstance(event, h11.Data):
                if event.chunk_start or not begun:
                    answer.chunks.append(b"")
                begun = True
                answer.chunks[-1] += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                answer.complete = True
                return answer
            else:
                return answer
        return answer

    def close(self) -> None:
        self._socket.close()


def call(
    url: str,
    method: str,
    target: str | bytes,
    body: bytes | None = None,
    headers: list[tuple[str, str]] | None = None,
) -> WireAnswer:
    """One whole call."""
    client = WireClient(url)
    try:
        return client.start(method, target, body, headers).read()
    finally:
        client.close()
