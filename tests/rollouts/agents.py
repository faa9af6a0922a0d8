"""Agents for the tests of collection."""

from __future__ import annotations

from typing import Any

import httpx
from starlette.requests import Request

from otel_gym.servers.agent import SimpleResponsesAPIAgent


class CallingAgent(SimpleResponsesAPIAgent):
    """Makes `calls` chat calls per rollout that carry the rollout's id, and checks that the answers are its own."""

    name = "caller"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.asked: list[str] = []

    async def startup(self) -> None:
        # httpx looks at every connection of a client for each request: many small clients are far cheaper than a large one.
        self.clients = [httpx.AsyncClient(timeout=60, verify=False) for _ in range(16)]

    async def shutdown(self) -> None:
        for client in self.clients:
            await client.aclose()

    async def run(self, request: Request, body: dict[str, Any]) -> Any:
        rollout_id = str(self.rollout_id_from_run(body))
        self.asked.append(rollout_id)
        client = self.clients[len(self.asked) % len(self.clients)]
        url = self.base_url_for_run(self.model_server_url, body) + "/v1/chat/completions"
        mixed = 0
        for number in range(body.get("calls", 2)):
            text = f"{rollout_id}/{number}"
            message = {"role": "user", "content": text}
            answer = await client.post(url, json={"model": "echo", "messages": [message]})
            answer.raise_for_status()
            mixed += answer.json()["choices"][0]["message"]["content"] != text
        return {"reward": 0.5, "mixed": mixed, "num_model_calls": body.get("calls", 2)}
