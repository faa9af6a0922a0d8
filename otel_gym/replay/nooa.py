"""A client for NOOA agents (the package `nooa`, Python 3.12 or newer) whose history replays exactly.

    agent = MyAgent(llm=ReplayLLM("http://127.0.0.1:8000", "alias", ReplayScope("policy", "alias")))

NOOA keeps a tool call's `reasoning_items` with its event and gives them back with the call's message, so a
turn travels inside them (`otel_gym.replay.carrier`): through `snapshot_to_json`, through
`SQLiteStorageManager`, into a new process and back into the next request. An answer without tool calls is
kept by NOOA as its text alone; it comes back as a public message and is recorded as such a gap.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, TypeVar

import httpx
from nooa.context_blocks.events import EventBase
from nooa.storage import snapshot_from_json, snapshot_to_json
from nooa.unifiedllm import LLMResponse, Tool, ToolCall, UnifiedLLM
from pydantic import BaseModel

from otel_gym.replay.carrier import carrier, history_of
from otel_gym.replay.errors import ArchiveError
from otel_gym.replay.policy_client import DEFAULT_TIMEOUT_S, PolicyClient, PolicyReply
from otel_gym.replay.scope import ReplayScope
from otel_gym.replay.turn import Turn

T = TypeVar("T")

_CLIENT_KEYS = frozenset({"cache_control_injection_points", "timeout", "num_retries"})
_EVENTS = "_otel_gym_events"
_FINISH = {"max_output_tokens": "length", "content_filter": "error"}


class ReplayLLM(UnifiedLLM):  # type: ignore[misc]  # nooa is an optional package, unknown to the checker
    """A `UnifiedLLM` over a `PolicyClient`; the arguments are those of that class.

    `config` goes into every request as parameters of the Responses API, `context_window` (tokens) aside.
    `policy` has the rollout's gaps, turns and spent calls.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        scope: ReplayScope | None,
        max_policy_calls: int | None = None,
        *,
        rollout_id: str | None = None,
        http: httpx.AsyncClient | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        context_window: int = 128_000,
        **config: Any,
    ) -> None:
        super().__init__(model, context_window=context_window, **config)
        self.policy = PolicyClient(
            base_url,
            model,
            scope,
            max_policy_calls,
            rollout_id=rollout_id,
            http=http,
            headers=headers,
            timeout_s=timeout_s,
        )

    def count_tokens(self, text: str) -> int:
        """A rough count, four characters a token: a policy's tokenizer is not known here."""
        return len(text) // 4 + 1

    def call(
        self,
        messages: list[dict[str, Any]],
        tools: list[Tool] | None = None,
        output_model: type[BaseModel] | None = None,
        **kwargs: Any,
    ) -> LLMResponse:
        """`acall` for callers without an event loop, and for those inside one."""

        async def once() -> LLMResponse:
            try:
                return await self.acall(messages, tools, output_model, **kwargs)
            finally:
                await self.policy.aclose()  # the loop of this one call ends with it

        return _run(once())

    async def acall(
        self,
        messages: list[dict[str, Any]],
        tools: list[Tool] | None = None,
        output_model: type[BaseModel] | None = None,
        **kwargs: Any,
    ) -> LLMResponse:
        """Ask the policy. Raises what `PolicyClient.call` raises."""
        parameters = {**self.config, **kwargs}
        parameters.pop("context_window", None)
        reply = await self.policy.call(
            history_of(messages),
            tools=[_tool_schema(tool) for tool in tools] if tools else None,
            output_model=output_model,
            **{key: value for key, value in parameters.items() if key not in _CLIENT_KEYS},
        )
        return _llm_response(reply)

    async def aclose(self) -> None:
        """Close the policy client."""
        await self.policy.aclose()
        await super().aclose()


def _tool_schema(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.get_parameter_schema(),
    }


def _llm_response(reply: PolicyReply) -> LLMResponse:
    """NOOA's view of a turn. Beside tool calls the text stays out: NOOA would write it into the first call."""
    turn = reply.turn
    calls = [ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in turn.tool_calls]
    content: str | BaseModel = turn.content if reply.parsed is None else reply.parsed
    return LLMResponse(
        raw_response=turn,
        content="" if calls else content,
        tool_calls=calls,
        finish_reason="tool_calls" if calls else _FINISH.get(turn.finish_reason or "", "stop"),
        assistant_message=_assistant_message(turn),
        reasoning=turn.reasoning or None,
        usage=turn.usage,
    )


def _assistant_message(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.content}
    if turn.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in turn.tool_calls
        ]
        message["reasoning_items"] = [carrier(turn)]
    return message


def _run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, from a thread of its own: the caller may be inside a running loop."""
    results: list[T] = []
    failures: list[BaseException] = []

    def target() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001  # raised again in the calling thread
            failures.append(error)

    thread = threading.Thread(target=target, name="otel-gym-replay-call")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def snapshot_agent(agent: Any) -> dict[str, Any]:
    """NOOA's JSON snapshot of an agent with its events, which NOOA's own leaves out; a JSON value."""
    agent.__dict__[_EVENTS] = [
        {"class": _class_name(type(event)), "data": event.model_dump_json()}
        for event in agent.event_manager.values()
    ]
    try:
        snapshot: dict[str, Any] = snapshot_to_json(agent)
    finally:
        del agent.__dict__[_EVENTS]
    return snapshot


def restore_agent(snapshot: dict[str, Any], agent: Any) -> None:
    """Put the state and the events of `snapshot_agent` into a freshly made agent.

    Raises `ArchiveError` for an event of a class that no imported module defines.
    """
    snapshot_from_json(snapshot, agent)
    classes = {_class_name(kind): kind for kind in _event_classes(EventBase)}
    for event in agent.__dict__.pop(_EVENTS, []):
        kind = classes.get(event["class"])
        if kind is None:
            raise ArchiveError(f"no event class {event['class']!r}; import the module that has it")
        agent.event_manager.add(kind.model_validate_json(event["data"]))


def _event_classes(base: type[Any]) -> Iterator[type[Any]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _event_classes(kind)


def _class_name(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
