"""Processor time of a call through `otel-gym serve` to a loopback engine, by how many are in flight at once.

    python benchmarks/forwarding.py [--at-once 16,64,256,1000] [--calls 2000] [--rate 200] [--chunks 0]

At each level as many clients as are in flight ask one after another, and the engine thinks for so long that `--rate` calls a second arrive whatever the level is. So
the load is the same, and what grows with the level is what a connection costs that is only waiting. Capture is off: this is about the connections.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "y" * 900}]}).encode()
ANSWER = json.dumps({"id": "c", "choices": [{"message": {"content": "x" * 700}}]}).encode()
EVENT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"token"}}]}\n\n'
FILES = 20_000


def raise_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The engine: thinks as long as `x-think` says, and answers in `x-chunks` events, or whole where that is 0."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
            await reader.readexactly(int(fields[b"content-length"]))
            think_s, chunks = float(fields[b"x-think"]), int(fields[b"x-chunks"])
            if not chunks:
                await asyncio.sleep(think_s)
                size = b"content-length: %d\r\n\r\n" % len(ANSWER)
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + size + ANSWER
                )
                continue
            kind = b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n" + kind)
            for _ in range(chunks):
                await asyncio.sleep(think_s / chunks)
                writer.write(b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    writer.close()


def engine(told: Any) -> None:
    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    raise_limit()
    asyncio.run(run())


async def call(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, think_s: float, chunks: int
) -> float:
    """Seconds that a call took beyond the engine's thinking. Raises `RuntimeError` for anything but 200."""
    started_s = time.perf_counter()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-think: {think_s}\r\nx-chunks: {chunks}\r\n"
    writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(BODY) + BODY)
    answered = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not answered.startswith(b"http/1.1 200"):
        raise RuntimeError(answered.partition(b"\r\n")[0].decode())
    if b"content-length: " in answered:
        await reader.readexactly(int(answered.partition(b"content-length: ")[2].split()[0]))
    else:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    return time.perf_counter() - started_s - think_s


async def level(port: int, at_once: int, asked: argparse.Namespace) -> tuple[list[float], int]:
    """(seconds added to each call, errors) with `at_once` calls in flight."""
    think_s = at_once / asked.rate
    added: list[float] = []
    errors = 0

    async def client(number: int) -> None:
        nonlocal errors
        await asyncio.sleep(think_s * number / at_once)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for _ in range(max(2, asked.calls // at_once)):
                added.append(await call(reader, writer, think_s, asked.chunks))
        except (RuntimeError, OSError, asyncio.IncompleteReadError):
            errors += 1
        finally:
            writer.close()

    await asyncio.gather(*(client(number) for number in range(at_once)))
    return sorted(added), errors


def processor_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--at-once", default="16,64,256,1000")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--chunks", type=int, default=0)
    asked = parser.parse_args()
    raise_limit()
    here, there = multiprocessing.Pipe()
    running = multiprocessing.get_context("spawn").Process(
        target=engine, args=(there,), daemon=True
    )
    running.start()
    url = f"http://127.0.0.1:{here.recv()}"
    command = [sys.executable, "-c", "from otel_gym.cli.main import main; main()"]
    server = subprocess.Popen(
        [*command, "serve", "--engine", url, "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    port = int(server.stdout.readline().partition("http://127.0.0.1:")[2].split()[0])
    first: float | None = None
    try:
        asyncio.run(level(port, 4, asked))
        for at_once in map(int, asked.at_once.split(",")):
            before_s = processor_s(server.pid)
            added, errors = asyncio.run(level(port, at_once, asked))
            cost_ms = (processor_s(server.pid) - before_s) / len(added) * 1000
            first = first or cost_ms
            print(
                f"{at_once:5} at once: {cost_ms:.2f} ms of processor time a call ({cost_ms / first:.2f}x the first level), "
                f"added p50 {added[len(added) // 2] * 1000:.1f} ms, p99 {added[len(added) * 99 // 100] * 1000:.1f} ms, errors {errors}",
                flush=True,
            )
    finally:
        server.terminate()
        server.wait()
        running.terminate()


if __name__ == "__main__":
    main()
