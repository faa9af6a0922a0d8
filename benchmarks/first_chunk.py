"""How much later a stream's first chunk comes with capture.

    python benchmarks/first_chunk.py [--rounds N] [--json]

The same Starlette application four times: bare, bare once more, with capture installed and off, and with capture on. First in this process: from the call of
the application to the first part of the body that it sends. Then over real connections: each is served by uvicorn in a process of its own, and one client asks
them in turns and notes when the first bytes of the body arrive. There the wake-ups of a machine that rests between two requests weigh more than what is
measured, so those figures are only shown; the second bare server tells how far two equal ones differ.

Claims, of the medians in this process: capture on adds less than 100 µs; capture off adds less than 15. Exit code 1 where a claim is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from otel_gym.servers.listening import tune_interpreter
from otel_gym.servers.model import install_model_call_capture

KINDS = ("bare", "bare again", "off", "on")
ON_US, OFF_US = 100.0, 15.0
WARM = 100
"""Streams of each server before the measuring begins."""
CHUNKS = [
    b"data: "
    + json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1764000000,
            "model": "m",
            "choices": [{"index": 0, "delta": {"content": f"word{i} "}, "finish_reason": None}],
        }
    ).encode()
    + b"\n\n"
    for i in range(20)
] + [b"data: [DONE]\n\n"]
REQUEST = json.dumps(
    {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x" * 1000}]}
)


def main() -> int:
    """Measure, print, judge; or be one of the servers."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--rounds", type=int, default=1000, help="streams of each server")
    arguments.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    arguments.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--directory", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.serve:
        serve(given.serve, given.port, given.directory)
        return 0
    figures = {"in process": in_process(given.rounds), "connections": measure(given.rounds)}
    missed = judge(figures)
    if given.json:
        print(json.dumps({"figures": figures, "missed": missed}))
    return 1 if missed else 0


async def stream(request: Request) -> StreamingResponse:
    """A chat stream that begins at once."""
    await request.body()

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in CHUNKS:
            yield chunk

    return StreamingResponse(chunks(), media_type="text/event-stream")


def _nothing() -> None:
    pass


def application(kind: str, directory: Path) -> tuple[Starlette, Callable[[], None]]:
    """The application of one kind, and what ends its capture."""
    close = _nothing
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", stream, methods=["POST"]),
            Route("/ng-rollout/{rollout}/v1/chat/completions", stream, methods=["POST"]),
        ]
    )
    if not kind.startswith("bare"):
        on = kind == "on"
        settings = {
            "observability_enabled": on,
            "model_call_capture_dir": str(directory) if on else None,
        }
        close = install_model_call_capture(app, settings, model_server_name="policy").close
    return app, close


def serve(kind: str, port: int, directory: str) -> None:
    """Serve the application until told to stop."""
    app, _ = application(kind, Path(directory))
    tune_interpreter()
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        log_level="error",
        access_log=False,
        timeout_keep_alive=300,
    )


def in_process(rounds: int) -> dict[str, dict[str, float]]:
    """Time to the first chunk of each application in this process, in microseconds."""
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    tune_interpreter()

    async def go(directory: Path) -> None:
        apps = {kind: application(kind, directory / kind) for kind in KINDS}
        order = list(KINDS)
        for number in range(rounds + WARM):
            random.shuffle(order)
            for kind in order:
                took = await first_part(apps[kind][0], f"r{number % 50}")
                if number >= WARM:
                    taken[kind].append(took * 1e6)
        for _, close in apps.values():
            close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(go(Path(directory)))
    return _figures(taken)


async def first_part(app: Starlette, rollout: str) -> float:
    """Seconds from the call of an application to the first part of the body that it sends."""
    path = f"/ng-rollout/{rollout}/v1/chat/completions"
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "root_path": "",
    }
    first = 0.0
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()  # the client stays until the stream has ended
        asked = True
        return {"type": "http.request", "body": REQUEST.encode(), "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal first
        if message.get("body") and not first:
            first = time.perf_counter()

    began = time.perf_counter()
    await app(scope, receive, send)
    return first - began


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Time to the first chunk of each server, in microseconds."""
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        connections = {kind: stack.enter_context(server(kind, directory)) for kind in KINDS}
        order = list(KINDS)
        for number in range(rounds + WARM):
            random.shuffle(order)
            for kind in order:
                took = first_chunk(connections[kind], f"r{number % 50}")
                if number >= WARM:
                    taken[kind].append(took * 1e6)
        lines = sum(
            path.read_bytes().count(b"\n") for path in (directory / "on").glob("*.capture.jsonl")
        )
        calls = rounds + WARM + 1  # one was asked for when the server began
        if lines != calls:
            raise SystemExit(f"{lines} records of {calls} calls")
    return _figures(taken)


def _figures(taken: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    return {
        kind: {"p50_us": statistics.median(values), "p90_us": statistics.quantiles(values, n=10)[8]}
        for kind, values in taken.items()
    }


@contextlib.contextmanager
def server(kind: str, directory: Path) -> Iterator[http.client.HTTPConnection]:
    """A server process, and a connection to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            *(sys.executable, __file__, "--serve", kind),
            *("--port", str(port), "--directory", str(directory / kind)),
        ],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                first_chunk(connection, "first")
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.05)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection
        connection.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def first_chunk(connection: http.client.HTTPConnection, rollout: str) -> float:
    """Seconds from the request to the first byte of the streamed body; reads the stream to its end."""
    path = f"/ng-rollout/{rollout}/v1/chat/completions"
    began = time.perf_counter()
    connection.request("POST", path, REQUEST, {"content-type": "application/json"})
    response = connection.getresponse()
    response.read(1)
    took = time.perf_counter() - began
    response.read()
    return took


def judge(figures: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Print every figure and claim; gives those that are missed."""
    for where, kinds in figures.items():
        bare = kinds["bare"]["p50_us"]
        for kind, one in kinds.items():
            print(
                f"{where:11}  {kind:10}  first chunk p50 {one['p50_us']:7.1f} us  p90 {one['p90_us']:7.1f} us"
                f"  over bare {one['p50_us'] - bare:+7.1f} us"
            )
    here = figures["in process"]
    added = {kind: here[kind]["p50_us"] - here["bare"]["p50_us"] for kind in ("on", "off")}
    claims = {
        f"in process, capture on adds under {ON_US:g} us": added["on"] < ON_US,
        f"in process, capture off adds under {OFF_US:g} us": added["off"] < OFF_US,
    }
    for name, kept in claims.items():
        print(f"{'kept  ' if kept else 'MISSED'} {name}")
    return [name for name, kept in claims.items() if not kept]


if __name__ == "__main__":
    sys.exit(main())
