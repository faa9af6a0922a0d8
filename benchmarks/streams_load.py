"""The load of `benchmarks/streams.py`: streams through an ASGI application in this process. Imports nothing of otel-gym,
so that the reference middleware can be put under the same load in its own environment.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from dataclasses import asdict, dataclass
from typing import Any

DONE = b"data: [DONE]\n\n"
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]
REQUEST = json.dumps(
    {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
).encode()
CHUNKS_A_TURN = 10
"""Chunks after which a stream lets the others run, as it would at a socket."""


def text_chunks(count: int) -> list[bytes]:
    """Small Chat Completions chunks, as vLLM sends them, and the end."""
    head = {
        "id": "chatcmpl-0123456789abcdef0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1764000000,
        "model": "meta-llama/Llama-3.1-8B-Instruct",
    }
    chunks = []
    for number in range(count - 1):
        choice = {
            "index": 0,
            "delta": {"content": f" tok{number}"},
            "logprobs": None,
            "finish_reason": None,
        }
        chunks.append(
            b"data: "
            + json.dumps({**head, "choices": [choice]}, separators=(",", ":")).encode()
            + b"\n\n"
        )
    return [*chunks, DONE]


def large_event(size_bytes: int, piece_bytes: int = 1024) -> list[bytes]:
    """One event of about `size_bytes` in pieces, and the end."""
    choice = {"index": 0, "delta": {"content": "x" * size_bytes}, "finish_reason": None}
    event = b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"
    return [*(event[i : i + piece_bytes] for i in range(0, len(event), piece_bytes)), DONE]


def streaming(chunks: list[bytes]) -> Any:
    """An application that answers every request with the chunks."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        for number, chunk in enumerate(chunks):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if number % CHUNKS_A_TURN == 0:
                await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


class Tee:
    """The least that anything between application and client can do: look at each message and keep its bytes."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        kept: list[bytes] = []

        async def tee(message: Any) -> None:
            if message["type"] == "http.response.body":
                kept.append(message["body"])
            await send(message)

        await self.app(scope, receive, tee)


@dataclass
class Measured:
    """What one run of a load cost."""

    streams: int
    chunks: int
    wall_s: float
    loop_s: float
    """CPU seconds of the event loop's thread."""
    cpu_s: float
    """CPU seconds of all threads."""

    @property
    def loop_us_a_chunk(self) -> float:
        return self.loop_s / self.chunks * 1e6

    @property
    def cpu_us_a_chunk(self) -> float:
        return self.cpu_s / self.chunks * 1e6

    @property
    def streams_a_second(self) -> float:
        return self.streams / self.wall_s

    def as_json(self) -> str:
        return json.dumps(asdict(self))


async def _stream(app: Any, rollout_id: str, expected_bytes: int) -> None:
    received = 0

    async def receive() -> Any:
        return {"type": "http.request", "body": REQUEST, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal received
        if message["type"] == "http.response.body":
            received += len(message["body"])

    path = f"/ng-rollout/{rollout_id}/v1/chat/completions"
    scope = {
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
    await app(scope, receive, send)
    if received != expected_bytes:
        raise SystemExit(
            f"rollout {rollout_id}: {received} bytes arrived, {expected_bytes} were sent"
        )


def run(app: Any, chunks: list[bytes], *, streams: int, at_once: int, name: str) -> Measured:
    """Put `streams` streams through the application, `at_once` at a time, each in a rollout of its own."""
    size = sum(map(len, chunks))

    async def worker(number: int) -> None:
        for one in range(number, streams, at_once):
            await _stream(app, f"{name}-{one}", size)

    async def all_of_them() -> None:
        await asyncio.gather(*(worker(number) for number in range(at_once)))

    gc.collect()
    wall, loop, cpu = time.perf_counter(), time.thread_time(), time.process_time()
    asyncio.run(all_of_them())
    return Measured(
        streams,
        streams * len(chunks),
        time.perf_counter() - wall,
        time.thread_time() - loop,
        time.process_time() - cpu,
    )
