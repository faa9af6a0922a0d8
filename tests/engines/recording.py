"""A loopback engine that keeps the exact bytes it was sent and answers the exact chunks it was told to.

with RecordingEngine() as engine:
    engine.answers("/v1/chat/completions", Script(chunks=[b"data: 1\\n\\n", b"data: [DONE]\\n\\n"]))
    ... call something that forwards to engine.url ...
    assert engine.received[0].body == ...
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from tests.engines.serving import Served

JSON = [(b"content-type", b"application/json")]
EVENT_STREAM = [(b"content-type", b"text/event-stream")]


@dataclass
class Received:
    """One request as it reached the engine."""

    method: str
    path: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    disconnected: threading.Event = field(default_factory=threading.Event)
    """Set when the caller went away before the answer was complete."""

    def header(self, name: str) -> str | None:
        """The only value of a header, null where it is absent."""
        values = [v.decode("latin-1") for k, v in self.headers if k == name.encode()]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.body)


@dataclass
class Script:
    """One answer. With `content_length` the chunks are one body of known length, else each is one chunk on the wire."""

    chunks: Sequence[bytes] = (b"{}",)
    status: int = 200
    headers: Sequence[tuple[bytes, bytes]] = ((b"content-type", b"application/json"),)
    content_length: bool = False
    hold_after: int | None = None
    """Number of chunks after which the engine waits for `release`, or until its caller goes away."""
    release: threading.Event = field(default_factory=threading.Event)
    hold_before_answer: bool = False
    """Whether the engine holds in the same way before it sends even the headers."""
    break_off: bool = False
    """Whether the connection is closed instead of the answer being completed."""


def json_script(value: Any, status: int = 200) -> Script:
    """A whole JSON answer."""
    return Script([orjson.dumps(value)], status=status, content_length=True)


def stream_script(*chunks: bytes) -> Script:
    """An event stream, one wire chunk for each argument."""
    return Script(list(chunks), headers=EVENT_STREAM)


class BreakOff(Exception):
    """Ends an answer without completing it."""


class RecordingEngine:
    """The engine; use as a context manager. Answers `default` on a path without a script."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.arrived = threading.Event()
        """Set when a request has been received whole."""
        self.default: Script | Callable[[Received], Script] = Script()
        self._scripts: dict[str, Script | Callable[[Received], Script]] = {}
        self._served = Served(self, lifespan="off")
        self.url = self._served.url

    def answers(self, path: str, script: Script | Callable[[Received], Script]) -> None:
        """From now on `path` answers with `script`, or with what `script` makes of the request."""
        self._scripts[path] = script

    def reset(self) -> None:
        """Forget what was received and every script."""
        self.received = []
        self.arrived.clear()
        self.default = Script()
        self._scripts = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = scope["query_string"]
        request = Received(
            method=scope["method"],
            path=scope["path"],
            target=scope["raw_path"] + (b"?" + query if query else b""),
            headers=list(scope["headers"]),
        )
        more = True
        while more:
            message = await receive()
            request.body += message.get("body", b"")
            more = message.get("more_body", False)
        self.received.append(request)
        self.arrived.set()
        script = self._scripts.get(request.path, self.default)
        if callable(script):
            script = script(request)
        if script.hold_before_answer:
            await self._hold(script, request, receive)
        headers = list(script.headers)
        if script.content_length:
            headers.append((b"content-length", str(sum(map(len, script.chunks))).encode()))
        await send({"type": "http.response.start", "status": script.status, "headers": headers})
        for number, chunk in enumerate(script.chunks):
            if number == script.hold_after:
                await self._hold(script, request, receive)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if script.hold_after == len(script.chunks):
            await self._hold(script, request, receive)
        if script.break_off:
            raise BreakOff
        await send({"type": "http.response.body", "body": b""})

    async def _hold(self, script: Script, request: Received, receive: Receive) -> None:
        gone = asyncio.ensure_future(receive())
        while not script.release.is_set() and not gone.done():
            await asyncio.wait([gone], timeout=0.005)
        if gone.done() and gone.result()["type"] == "http.disconnect":
            request.disconnected.set()
        gone.cancel()

    def __enter__(self) -> RecordingEngine:
        self._served.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._served.stop()
