"""Servers that are born in milliseconds; see `server.py`."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.reliability.client import call

ROOT = Path(__file__).resolve().parents[2]


class Nursery:
    """A process that forks servers on one capture directory. An asynchronous context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("server.py")),
            str(self._directory),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def server(self) -> tuple[int, int]:
        """(pid, port) of a new server."""
        assert self._process.stdin is not None and self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(b"\n")
            await self._process.stdin.drain()
            pid, port = map(int, (await self._process.stdout.readline()).split())
        return pid, port


async def load(
    port: int, rollouts: int, seen: list[tuple[str, str]], chance: random.Random
) -> None:
    """Call, streamed and not, until the server is gone; (rollout, marker) of every answer whose end was seen."""
    failures = 0
    while failures < 3:
        rollout_id = f"r{chance.randrange(rollouts)}"
        marker = await call(port, rollout_id, stream=chance.random() < 0.5)
        if marker is None:
            failures += 1
        else:
            failures = 0
            seen.append((rollout_id, marker))
