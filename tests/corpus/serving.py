"""A recorded exchange served through the real capture middleware, in chunks of one's choice."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from otel_gym.capture.record import ModelCallRecord, build_model_call_record
from tests.capture.asgi import Rig
from tests.corpus.exchanges import PATHS, Recorded

CHUNKINGS = ("whole", "random", "one byte")


def pieces(body: bytes, chunking: str) -> Iterator[bytes]:
    """The body whole, cut at random places (the same ones every time), or byte by byte."""
    if chunking == "one byte":
        for position in range(len(body)):
            yield body[position : position + 1]
    elif chunking == "random":
        places = random.Random(len(body))
        position = 0
        while position < len(body):
            size = places.choice((1, 2, 3, 7, 40, 200, 1000, 8000))
            yield body[position : position + size]
            position += size
    else:
        yield body


async def serve(rig: Rig, exchange: Recorded, rollout_id: str, chunking: str) -> bytes:
    """Serve the exchange as one call of the rollout; gives the bytes that the client received."""
    request = json.dumps(exchange.request).encode() if exchange.request is not None else b""
    headers = []
    if exchange.content_type:
        headers.append((b"content-type", exchange.content_type.encode("latin-1", "replace")))
    if exchange.content_encoding:
        headers.append((b"content-encoding", exchange.content_encoding.encode()))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(
            {"type": "http.response.start", "status": exchange.status_code, "headers": headers}
        )
        for piece in pieces(exchange.body, chunking):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def receive() -> Message:
        return {"type": "http.request", "body": request, "more_body": False}

    received: list[bytes] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            received.append(message["body"])

    path = f"/ng-rollout/{rollout_id}{PATHS[exchange.dialect]}"
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
    await rig.wrap(app)(scope, receive, send)
    return b"".join(received)


def recorded(rig: Rig, rollout_id: str) -> tuple[dict[str, Any], ModelCallRecord]:
    """The one durable line of the rollout, and the record derived from it."""
    (raw,) = rig.lines(rollout_id)
    return raw, build_model_call_record(raw, 0)
