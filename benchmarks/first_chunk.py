"""How much later a stream's first chunk comes with capture, over real connections.

    python benchmarks/first_chunk.py [--rounds N] [--json]

The same Starlette application is served by uvicorn four times, each in a process of its own: bare, bare once more, with capture installed and off, and with
capture on. One client asks them in turns over kept connections and notes when the first bytes of the streamed body arrive. The second bare server tells how
far two equal servers differ in this run.

Claims: capture on adds less than 100 µs (median) to the first chunk; capture off adds no more than the two bare servers differ, or 15 µs. Exit code 1 where a
claim is missed.
"""

from __future__ import annotations

import argparse
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
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from otel_gym.servers.listening import tune_interpreter
from otel_gym.servers.model import install_model_call_capture

KINDS = ("bare", "bare again", "off", "on")
ON_US, OFF_US = 100.0, 15.0
TURN = 25
"""Streams that one server gives before the next one's turn."""
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
    arguments.add_argument("--rounds", type=int, default=2000, help="streams of each server")
    arguments.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    arguments.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--directory", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.serve:
        serve(given.serve, given.port, given.directory)
        return 0
    figures = measure(given.rounds)
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


def serve(kind: str, port: int, directory: str) -> None:
    """Serve the application until told to stop."""
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
            "model_call_capture_dir": directory if on else None,
        }
        install_model_call_capture(app, settings, model_server_name="policy")
    tune_interpreter()
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        log_level="error",
        access_log=False,
        timeout_keep_alive=300,
    )


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Time to the first chunk of each server, in microseconds."""
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        connections = {kind: stack.enter_context(server(kind, directory)) for kind in KINDS}
        order = list(KINDS)
        for turn in range(rounds // TURN + 4):
            random.shuffle(order)
            for kind in order:
                for number in range(TURN):
                    took = first_chunk(connections[kind], f"r{number}")
                    if turn >= 4:
                        taken[kind].append(took * 1e6)
        lines = sum(
            path.read_bytes().count(b"\n") for path in (directory / "on").glob("*.capture.jsonl")
        )
        calls = (rounds // TURN + 4) * TURN + 1  # one was asked for when the server began
        if lines != calls:
            raise SystemExit(f"{lines} records of {calls} calls")
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


def judge(figures: dict[str, dict[str, float]]) -> list[str]:
    """Print every figure and claim; gives those that are missed."""
    bare = figures["bare"]["p50_us"]
    for kind, one in figures.items():
        print(
            f"{kind:10}  first chunk p50 {one['p50_us']:7.1f} us  p90 {one['p90_us']:7.1f} us"
            f"  over bare {one['p50_us'] - bare:+7.1f} us"
        )
    between_equals = abs(figures["bare again"]["p50_us"] - bare)
    claims = {
        f"capture on adds under {ON_US:g} us": figures["on"]["p50_us"] - bare < ON_US,
        f"capture off adds no more than equal servers differ ({between_equals:.1f} us), or {OFF_US:g} us": figures[
            "off"
        ]["p50_us"]
        - bare
        <= max(between_equals, OFF_US),
    }
    for name, kept in claims.items():
        print(f"{'kept  ' if kept else 'MISSED'} {name}")
    return [name for name, kept in claims.items() if not kept]


if __name__ == "__main__":
    sys.exit(main())
