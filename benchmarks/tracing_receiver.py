"""An OTLP/HTTP receiver that takes everything and does nothing: `python benchmarks/tracing_receiver.py` prints its port."""

from __future__ import annotations

import asyncio


class Taking(asyncio.Protocol):
    """Reads requests by their Content-Length and answers 200 with an empty body."""

    def __init__(self) -> None:
        self._buffer = b""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        while data:
            if self._left:
                taken = min(self._left, len(data))
                self._left -= taken
                data = data[taken:]
                if not self._left:
                    self._answer()
                continue
            self._buffer += data
            head, found, data = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            self._buffer = b""
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    self._left = int(line.partition(b":")[2])
            if not self._left:
                self._answer()

    def _answer(self) -> None:
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")  # type: ignore[attr-defined]


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Taking, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
