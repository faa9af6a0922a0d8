"""The demo's agent server: each `/run` plays the scripted agent, whose dialect follows from the task's index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from otel_gym.correlation.rollout_id import TASK_INDEX
from otel_gym.demo.agent import ScriptedAgent
from otel_gym.servers.agent import SimpleResponsesAPIAgent
from otel_gym.settings import Settings


class ScriptedAgentServer(SimpleResponsesAPIAgent):
    """Plays as many turns as the task says; `on_call` is told of every finished call."""

    name = "scripted_agent"

    def __init__(self, settings: Settings, *, on_call: Callable[[], None]) -> None:
        super().__init__(settings)
        self._on_call = on_call

    async def run(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """Play one rollout. Raises what the SDKs raise."""
        base_url = self.base_url_for_run(self.model_server_url, body)
        agent = ScriptedAgent(base_url, number=body[TASK_INDEX], turns=body["turns"])
        return {"answer": await agent.run(self._on_call), "num_model_calls": body["turns"]}
