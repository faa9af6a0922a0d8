"""The load of `benchmarks/capture.py`: JSON calls through an ASGI application in this process, and bare writes of the same bytes. Imports nothing of
otel-gym, so that the reference middleware can be put under the same load in its own environment.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ANSWER = json.dumps(
    {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion",
        "created": 1764000000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "y" * 200},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 200, "completion_tokens": 50, "total_tokens": 250},
    }
).encode()
HEADERS = [(b"content-type", b"application/json")]


@dataclass
class Measured:
    """What one load came to."""

    calls_a_second: float
    p50_ms: float
    p99_ms: float
    cpu_us_a_call: float
    lag_p99_ms: float = 0.0
    """Event-loop lag: how late a one-millisecond sleep woke, 99th percentile."""

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def request_of(size: int) -> bytes:
    """A chat request of about `size` bytes, in messages of 2 KB."""
    messages = []
    left = size - 60
    while left > 0:
        part = min(left, 2000)
        messages.append({"role": "user", "content": "x" * max(1, part - 40)})
        left -= part
    return json.dumps({"model": "m", "messages": messages}).encode()


async def answering(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads the request and answers at once."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


def run(app: Any, request: bytes, *, calls: int, at_once: int, name: str, one: bool) -> Measured:
    """`calls` calls, `at_once` at a time, each worker in a rollout of its own or all in one."""
    return asyncio.run(_run(app, request, calls, at_once, name, one))


async def _run(
    app: Any, request: bytes, calls: int, at_once: int, name: str, one: bool
) -> Measured:
    latencies: list[float] = []

    async def worker(number: int, left: Iterator[int]) -> None:
        rollout = f"{name}-0" if one else f"{name}-{number}"
        path = f"/ng-rollout/{rollout}/v1/chat/completions"
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": HEADERS,
            "root_path": "",
        }
        ended = 0.0

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": request, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal ended
            if message["type"] == "http.response.body" and not message.get("more_body"):
                ended = time.perf_counter()

        for _ in left:
            began = time.perf_counter()
            await app(dict(scope), receive, send)
            latencies.append(ended - began)
            await asyncio.sleep(0)

    lags: list[float] = []

    async def watch() -> None:
        while True:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            lags.append(time.perf_counter() - due)

    # Each rollout's first call makes its file; like the bare forms, what is measured are writes into files that exist.
    await asyncio.gather(*(worker(number, iter(range(1))) for number in range(at_once)))
    latencies.clear()
    gc.collect()
    left = iter(range(calls))
    watching = asyncio.create_task(watch())
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker(number, left) for number in range(at_once)))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    watching.cancel()
    return _measured(latencies, took, cpu, lags)


def bare_threads(directory: Path, line: bytes, *, calls: int, at_once: int, one: bool) -> Measured:
    """Write and fdatasync by as many threads as calls at once, and nothing else."""
    files = _files(directory, 1 if one else at_once)
    latencies: list[float] = []
    left = iter(range(calls))
    lock = threading.Lock()

    def work(number: int) -> None:
        descriptor = files[number % len(files)]
        while True:
            with lock:
                if next(left, None) is None:
                    return
            began = time.perf_counter()
            os.write(descriptor, line)
            os.fdatasync(descriptor)
            latencies.append(time.perf_counter() - began)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(at_once)]
    began, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    _close(files)
    return _measured(latencies, took, cpu, [])


def bare_awaited(directory: Path, line: bytes, *, calls: int, at_once: int, one: bool) -> Measured:
    """Write and fdatasync awaited by exchanges on an event loop: what any asynchronous server has to do at least."""

    async def go() -> Measured:
        files = _files(directory, 1 if one else at_once)
        latencies: list[float] = []
        left = iter(range(calls))
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(at_once) as pool:

            async def worker(number: int) -> None:
                descriptor = files[number % len(files)]
                for _ in left:
                    began = time.perf_counter()
                    await loop.run_in_executor(pool, _write_and_sync, descriptor, line)
                    latencies.append(time.perf_counter() - began)

            began, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(worker(number) for number in range(at_once)))
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
        _close(files)
        return _measured(latencies, took, cpu, [])

    return asyncio.run(go())


BARE: dict[str, Callable[..., Measured]] = {
    "bare threads": bare_threads,
    "bare awaited": bare_awaited,
}


def _write_and_sync(descriptor: int, line: bytes) -> None:
    os.write(descriptor, line)
    os.fdatasync(descriptor)


def _files(directory: Path, count: int) -> list[int]:
    directory.mkdir(exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC
    return [os.open(directory / f"bare-{number}", flags) for number in range(count)]


def _close(files: list[int]) -> None:
    for descriptor in files:
        os.close(descriptor)


def _measured(latencies: list[float], took: float, cpu: float, lags: list[float]) -> Measured:
    latencies.sort()
    lags.sort()
    return Measured(
        calls_a_second=len(latencies) / took,
        p50_ms=latencies[len(latencies) // 2] * 1e3,
        p99_ms=latencies[int(len(latencies) * 0.99)] * 1e3,
        cpu_us_a_call=cpu / len(latencies) * 1e6,
        lag_p99_ms=lags[int(len(lags) * 0.99)] * 1e3 if lags else 0.0,
    )
