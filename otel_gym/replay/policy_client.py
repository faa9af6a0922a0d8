"""The policy's client: one call of a rollout, captured before anything is made of it.

The order of a call, and what can end it:

    prepare      the history is projected                       PreparationError, nothing charged
    charge       the rollout's budget pays one call             PolicyCallBudgetExceeded, nothing sent
    send         POST <base>/ng-rollout/<id>/v1/responses       PolicyServerError
    capture      the answer becomes a turn, kept from here on   PolicyServerError where it can't, or failed
    answerable   no call that the client can't execute          UnsupportedClientCall
    refusal      where structured output was asked for          PolicyRefusal, also beside valid JSON
    parse        structured output from exactly `turn.content`  InvalidPolicyOutput
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final
from weakref import WeakKeyDictionary

import httpx
from pydantic import BaseModel, ValidationError

from otel_gym.correlation.prefix import apply_rollout_prefix
from otel_gym.replay.capture import capture_turn
from otel_gym.replay.container import HistoryEntry
from otel_gym.replay.errors import (
    CaptureError,
    InvalidPolicyOutput,
    PolicyCallBudgetExceeded,
    PolicyCallError,
    PolicyRefusal,
    PolicyServerError,
    PreparationError,
    UnsupportedClientCall,
)
from otel_gym.replay.json_values import dump_json
from otel_gym.replay.projection import Projection, project
from otel_gym.replay.scope import ReplayScope
from otel_gym.replay.turn import Turn

DEFAULT_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """A usable answer. `parsed` is the structured output, null where none was asked for or tools are called."""

    turn: Turn
    parsed: BaseModel | None


class PolicyClient:
    """Calls one policy for one rollout. `base_url` is the model server's root, without `/v1`.

    `scope` is what turns are captured under and replayed to; null replays nothing exactly.
    `max_policy_calls` bounds the calls that are sent, null is no bound. `on_capture` sees each turn as
    soon as it exists, before any rule can fail. `http` is closed by its owner; without one the client has
    its own, closed by `aclose`.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        scope: ReplayScope | None,
        max_policy_calls: int | None,
        *,
        rollout_id: str | None = None,
        http: httpx.AsyncClient | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        on_capture: Callable[[Turn], None] | None = None,
    ) -> None:
        self.url = apply_rollout_prefix(base_url, rollout_id).rstrip("/") + "/v1/responses"
        self.model = model
        self.scope = scope
        self.max_policy_calls = max_policy_calls
        self._given_http = http
        self._own_http: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )
        self._timeout_s = timeout_s
        self._headers = {**(headers or {}), "content-type": "application/json"}
        self._on_capture = on_capture
        self._turns: list[Turn] = []
        self._gaps: set[str] = set()
        self._calls = 0
        self.preparation_error: PreparationError | None = None
        """The last preparation's failure; null again once a later one succeeds. Set at the rollout's end,
        it makes the rollout ungradable."""

    @property
    def policy_calls(self) -> int:
        """How many calls the budget has paid for."""
        return self._calls

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every captured turn, also of calls that failed afterwards."""
        return tuple(self._turns)

    @property
    def gaps(self) -> frozenset[str]:
        """The rollout's gap codes, each once (see `otel_gym.replay.gaps`)."""
        return frozenset(self._gaps)

    async def call(
        self,
        history: Sequence[HistoryEntry],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        output_model: type[BaseModel] | None = None,
        **parameters: Any,
    ) -> PolicyReply:
        """Send a history and return the policy's turn. `tools` are function tools of the Responses API;
        `parameters` go into the request as they are. Raises what the module's table says, in its order.
        """
        try:
            projection, body = self._prepare(history, tools, output_model, parameters)
        except PreparationError as error:
            self.preparation_error = error
            raise
        self.preparation_error = None
        try:
            self._charge()
            self._gaps |= projection.gaps
            turn = self._captured(await self._send(body))
            if turn.facts.status == "failed":
                raise PolicyServerError(
                    f"{self.url}: the response failed", status_code=200, turn=turn
                )
            return PolicyReply(turn, _checked(turn, output_model))
        except PolicyCallError as error:
            self._gaps.add(error.gap_code)
            raise

    def _prepare(
        self,
        history: Sequence[HistoryEntry],
        tools: Sequence[Mapping[str, Any]] | None,
        output_model: type[BaseModel] | None,
        parameters: dict[str, Any],
    ) -> tuple[Projection, bytes]:
        projection = project(history, self.scope)
        request: dict[str, Any] = {**parameters, "model": self.model}
        if projection.instructions is not None:
            request["instructions"] = projection.instructions
        if tools:
            for position, tool in enumerate(tools):
                if not isinstance(tool, Mapping):
                    raise PreparationError(len(history), f"tools[{position}]", "want an object")
            request["tools"] = [dict(tool) for tool in tools]
        if output_model is not None:
            request["text"] = {"format": _output_format(output_model)}
        request.pop("input", None)
        try:
            head = dump_json(request)
        except ValueError as error:
            raise PreparationError(len(history), "request", str(error)) from error
        return projection, head[:-1] + b',"input":' + projection.to_json() + b"}"

    def _charge(self) -> None:
        if self.max_policy_calls is not None and self._calls >= self.max_policy_calls:
            raise PolicyCallBudgetExceeded(
                f"the rollout has used its {self.max_policy_calls} policy calls"
            )
        self._calls += 1

    async def _send(self, body: bytes) -> bytes:
        try:
            answer = await self._http().post(self.url, content=body, headers=self._headers)
        except httpx.TimeoutException as error:
            raise PolicyServerError(f"{self.url}: timed out", timed_out=True) from error
        except httpx.HTTPError as error:
            raise PolicyServerError(f"{self.url}: {type(error).__name__}: {error}") from error
        if answer.status_code != 200:
            raise PolicyServerError(
                f"{self.url}: status {answer.status_code}", status_code=answer.status_code
            )
        return answer.content

    def _http(self) -> httpx.AsyncClient:
        """The given HTTP client, or our own of the running event loop (frameworks call from several)."""
        if self._given_http is not None:
            return self._given_http
        loop = asyncio.get_running_loop()
        if loop not in self._own_http:
            self._own_http[loop] = httpx.AsyncClient(timeout=self._timeout_s)
        return self._own_http[loop]

    def _captured(self, content: bytes) -> Turn:
        try:
            turn = capture_turn(content, self.scope)
        except CaptureError as error:
            raise PolicyServerError(f"{self.url}: {error}", status_code=200) from error
        self._turns.append(turn)
        if self._on_capture is not None:
            self._on_capture(turn)
        return turn

    async def aclose(self) -> None:
        """Close our own HTTP client of the running event loop; a given one is left open."""
        own = self._own_http.pop(asyncio.get_running_loop(), None)
        if own is not None:
            await own.aclose()

    async def __aenter__(self) -> PolicyClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def _output_format(output_model: type[BaseModel]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "name": output_model.__name__,
        "schema": output_model.model_json_schema(),
        "strict": True,
    }


def _checked(turn: Turn, output_model: type[BaseModel] | None) -> BaseModel | None:
    """The rules after capture, in their order; the structured output where it was asked for."""
    for item_type in turn.unsupported_calls:
        raise UnsupportedClientCall(item_type, turn=turn)
    if output_model is None or turn.tool_calls:
        return None
    if turn.refusal is not None:
        raise PolicyRefusal("the model refused", turn=turn)
    try:
        return output_model.model_validate_json(turn.content)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
        first = problems[0]["msg"] if problems else "invalid"
        raise InvalidPolicyOutput(
            f"the text is no {output_model.__name__}: {first}", turn=turn
        ) from error
