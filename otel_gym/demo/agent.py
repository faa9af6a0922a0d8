"""A small scripted agent: asks a few questions in turn, with the official SDKs, through one rollout's base URL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from otel_gym.demo.engine import MODEL

AgentDialect = Literal["responses", "chat", "messages"]
DIALECTS: Final[tuple[AgentDialect, ...]] = ("responses", "chat", "messages")
MAX_TOKENS: Final = 24
"""Longest answer, in tokens; the demo is about the calls, not about what a very small model says."""

SYSTEM: Final = "You are a helpful assistant who answers in one short sentence."
QUESTIONS: Final = (
    "Name a river in Europe.",
    "Which countries does it flow through?",
    "Name a city on it.",
    "What is that city known for?",
    "Name another river, please.",
    "Which of the two is longer?",
)


@dataclass(frozen=True, slots=True)
class ScriptedAgent:
    """Plays one rollout of `turns` calls; the dialect and what is streamed follow from the rollout's number."""

    base_url: str
    """Root URL of the model server, with the rollout's prefix."""
    number: int
    turns: int

    async def run(self, on_call: Callable[[], None]) -> str:
        """Play the rollout and return the last answer; `on_call` is told of every finished call. Raises what the SDKs raise."""
        dialect = DIALECTS[self.number % len(DIALECTS)]
        clients: dict[AgentDialect, Callable[[str], Ask]] = {
            "responses": _Responses,
            "chat": _Chat,
            "messages": _Messages,
        }
        ask = clients[dialect](self.base_url)
        answer = ""
        history: list[dict[str, Any]] = []
        try:
            for turn in range(self.turns):
                history.append(
                    {"role": "user", "content": QUESTIONS[(self.number + turn) % len(QUESTIONS)]}
                )
                answer = await ask(history, stream=(self.number + turn) % 2 == 0)
                history.append({"role": "assistant", "content": answer or "."})
                on_call()
        finally:
            await ask.aclose()
        return answer


class Ask:
    """One dialect's client: asks with a history and returns the answer's text."""

    async def __call__(self, history: list[dict[str, Any]], *, stream: bool) -> str:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


class _OpenAI(Ask):
    def __init__(self, root: str) -> None:
        from openai import AsyncOpenAI

        self.client = AsyncOpenAI(
            base_url=f"{root}/v1", api_key="unused", max_retries=2, timeout=600
        )

    async def aclose(self) -> None:
        await self.client.close()


class _Responses(_OpenAI):
    async def __call__(self, history: list[dict[str, Any]], *, stream: bool) -> str:
        request: Any = {
            "model": MODEL,
            "instructions": SYSTEM,
            "input": [_input_item(**message) for message in history],
            "max_output_tokens": MAX_TOKENS,
        }
        if not stream:
            return str((await self.client.responses.create(**request)).output_text)
        # The plain event stream, not the SDK's accumulator: that one needs a content_index, which llama.cpp leaves out.
        parts = []
        async for event in await self.client.responses.create(**request, stream=True):
            if event.type == "response.output_text.delta":
                parts.append(event.delta)
        return "".join(parts)


def _input_item(role: str, content: str) -> dict[str, Any]:
    """A message as an item of a Responses request; llama.cpp takes an answer only in the shape of an output item."""
    if role == "user":
        return {"role": role, "content": content}
    parts = [{"type": "output_text", "text": content, "annotations": []}]
    return {"type": "message", "role": role, "status": "completed", "content": parts}


class _Chat(_OpenAI):
    async def __call__(self, history: list[dict[str, Any]], *, stream: bool) -> str:
        messages = [{"role": "system", "content": SYSTEM}, *history]
        request: Any = {"model": MODEL, "messages": messages, "max_completion_tokens": MAX_TOKENS}
        if not stream:
            answer = await self.client.chat.completions.create(**request)
            return answer.choices[0].message.content or ""
        request |= {"stream": True, "stream_options": {"include_usage": True}}
        parts: list[str] = []
        async for chunk in await self.client.chat.completions.create(**request):
            parts += [choice.delta.content or "" for choice in chunk.choices]
        return "".join(parts)


class _Messages(Ask):
    def __init__(self, root: str) -> None:
        from anthropic import AsyncAnthropic

        self.client = AsyncAnthropic(base_url=root, api_key="unused", max_retries=2, timeout=600)

    async def __call__(self, history: list[dict[str, Any]], *, stream: bool) -> str:
        request: Any = {
            "model": MODEL,
            "system": SYSTEM,
            "messages": history,
            "max_tokens": MAX_TOKENS,
        }
        if not stream:
            message = await self.client.messages.create(**request)
        else:
            async with self.client.messages.stream(**request) as events:
                message = await events.get_final_message()
        return "".join(block.text for block in message.content if block.type == "text")

    async def aclose(self) -> None:
        await self.client.close()
