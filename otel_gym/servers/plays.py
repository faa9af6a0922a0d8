"""The rollouts that an agent server is playing: one task each, ended with its client or by the same rollout's next attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive

from otel_gym.servers.answers import AnswerProblem


class Plays:
    """What is playing, by rollout id.

    A collector that died and was started again asks for the same rollout again; without an end to the first play, two agents would call the model under one id.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    async def play(
        self, rollout_id: str | None, coroutine: Coroutine[Any, Any, Any], receive: Receive
    ) -> Any:
        """Run `coroutine` while its client listens and return its result.

        Raises what it raises, and `AnswerProblem` where it was cancelled: 499 because the client went away, 409 because the rollout was asked for again.
        """
        await self._end(rollout_id)
        task = asyncio.ensure_future(coroutine)
        if rollout_id is not None:
            self._tasks[rollout_id] = task
        watch = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
                raise AnswerProblem(
                    499, "client_gone", "the caller went away; the rollout was cancelled"
                )
            if task.cancelled():
                raise AnswerProblem(409, "superseded", f"rollout {rollout_id} was started again")
            return task.result()
        finally:
            task.cancel()
            watch.cancel()
            if rollout_id is not None and self._tasks.get(rollout_id) is task:
                del self._tasks[rollout_id]

    async def _end(self, rollout_id: str | None) -> None:
        while rollout_id is not None and (task := self._tasks.pop(rollout_id, None)) is not None:
            task.cancel()
            # Waits for the end of it and raises nothing of what it raised.
            await asyncio.wait((task,))


async def _disconnect(receive: Receive) -> None:
    """Return when the client has gone. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
