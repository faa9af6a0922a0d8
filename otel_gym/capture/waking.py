"""Telling exchanges that their waiting is over, from a flusher thread to their event loops."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from otel_gym.capture.job import Job

MAX_WOKEN: Final = 16
"""Most exchanges that are woken in one turn of an event loop."""


def wake(jobs: list[Job]) -> None:
    """Wake the exchanges that wait, with one call into each event loop; from any thread."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        if job.loop is not None:
            loops.setdefault(job.loop, []).append(job)
    for loop, waiting in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(resolve, waiting)


def resolve(jobs: list[Job]) -> None:
    """Answer what exchanges wait for; runs on their event loop, which gets its other work done between a few at a time."""
    rest = jobs[MAX_WOKEN:]
    if rest and rest[0].loop is not None:
        rest[0].loop.call_soon(resolve, rest)
    for job in jobs[:MAX_WOKEN]:
        job.answered = True
        if job.future is not None and not job.future.done():
            job.future.set_result(job.written)
