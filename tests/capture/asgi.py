"""Driving an ASGI application by hand: what it is sent and when, what it sends and when, with the file looked at in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from otel_gym.capture.capturing import Capture
from otel_gym.capture.middleware import CaptureMiddleware
from otel_gym.capture.writer import RecordWriter
from otel_gym.correlation.run import open_run
from otel_gym.settings import BridgeSettings

JSON = [(b"content-type", b"application/json")]
EVENT_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8")]


class Rig:
    """A capture directory with its writer and middleware; `lines` reads back what was recorded."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.writer = RecordWriter(directory)
        self.store = self.writer.store
        self.capture = Capture(
            self.writer,
            open_run(directory),
            BridgeSettings(**settings),
            model_server_name="policy",
            engine=None,
        )

    def wrap(self, app: ASGIApp) -> CaptureMiddleware:
        return CaptureMiddleware(app, capture=self.capture)

    def lines(self, rollout_id: str = "7-2") -> list[dict[str, Any]]:
        path = self.store.path_for(rollout_id)
        return (
            [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        )

    def close(self) -> None:
        self.writer.close(5.0)


@dataclass
class Call:
    """One request driven through an application; `sent` is what the client got, with how many records were durable by then."""

    rig: Rig
    path: str = "/ng-rollout/7-2/v1/chat/completions"
    body: bytes = b'{"model":"m"}'
    method: str = "POST"
    headers: Sequence[tuple[bytes, bytes]] = ()
    scope: dict[str, Any] = field(default_factory=dict)
    sent: list[Message] = field(default_factory=list)
    durable_at: list[int] = field(default_factory=list)
    disconnect: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, app: ASGIApp) -> Call:
        requests: list[Message] = [{"type": "http.request", "body": self.body, "more_body": False}]

        async def receive() -> Message:
            if requests:
                return requests.pop()
            await self.disconnect.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            self.sent.append(message)
            self.durable_at.append(len(self.rig.lines()))

        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": list(self.headers),
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
            **self.scope,
        }
        await app(scope, receive, send)
        return self

    @property
    def bodies(self) -> list[bytes]:
        return [
            message.get("body", b"")
            for message in self.sent
            if message["type"] == "http.response.body"
        ]


def answering(
    *bodies: bytes,
    headers: Sequence[tuple[bytes, bytes]] = JSON,
    status: int = 200,
    last: bool = True,
    after: Callable[[Receive], Awaitable[None]] | None = None,
) -> ASGIApp:
    """An application that reads the request, then sends `bodies`, the last one with more_body false where `last`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        for number, body in enumerate(bodies):
            more = not (last and number == len(bodies) - 1)
            await send({"type": "http.response.body", "body": body, "more_body": more})
        if after is not None:
            await after(receive)

    return app
