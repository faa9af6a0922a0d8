"""The base class of an agent server: `/run` plays one rollout, and everything it needs to say which one to the model server."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from otel_gym.correlation.prefix import (
    ROLLOUT_PATH_PREFIX,
    TOKEN_CAPTURE_SEGMENT,
    apply_rollout_prefix,
    rollout_path_prefix,
)
from otel_gym.correlation.rollout_id import checked, rollout_id_from_run_body
from otel_gym.correlation.run import read_run
from otel_gym.errors import InvalidRolloutId, OtelGymError, StoreError
from otel_gym.servers.answers import AnswerProblem, answer_of, json_object, problem_answer
from otel_gym.servers.identity import rollout_identity
from otel_gym.servers.plays import Plays
from otel_gym.servers.resolve import model_server_root_url, resolve_model_base_url
from otel_gym.settings import Settings, settings_from

log: Final = logging.getLogger("otel_gym.servers")

RUN_PATH: Final = "/run"
RESPONSES_PATH: Final = "/v1/responses"
NAME_HEADER: Final = "x-otel-gym-agent"
"""Header of every answer to /run, failures included: the agent's name, percent-encoded."""


class SimpleResponsesAPIAgent:
    """An ASGI application; subclass it and write `run`, or `responses`, or both.

    `settings` is `Settings` or a mapping of the configuration file's shape. `name` is the agent's name there, and that of its spans. Set `token_capture` on a
    subclass whose calls also ask for training token capture.

    A `/run` ends with its client: when the caller goes away, or asks for the same rollout again, what is still playing is cancelled.
    """

    name: str = "agent"
    token_capture: bool = False

    def __init__(
        self,
        settings: Settings | Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
    ) -> None:
        self.settings = (
            settings if isinstance(settings, Settings) else settings_from(settings or {})
        )
        self.name = name or self.name
        self.config: Mapping[str, Any] = self.settings.agents.get(self.name, {})
        self._plays = Plays()

    # -- to be written by a subclass

    async def run(self, request: Request, body: dict[str, Any]) -> Any:
        """Play one rollout and return its result: a mapping, a model or a Response.

        As it stands it asks `responses` with the body's `responses_create_params`, and the result is the body with the answer as `response`.
        """
        parameters = body.get("responses_create_params")
        if not isinstance(parameters, dict):
            raise AnswerProblem(
                422, "no_input", "the run body has no object responses_create_params"
            )
        return {
            **body,
            "response": await self.responses(self._own_request(request, body), parameters),
        }

    async def responses(self, request: Request, body: dict[str, Any]) -> Any:
        """Answer one Responses API request with the whole agent; `url_path_for_request` keeps its rollout."""
        raise AnswerProblem(501, "not_implemented", f"agent {self.name} has no responses()")

    async def startup(self) -> None:
        """Called once before the agent serves: open clients here."""

    async def shutdown(self) -> None:
        """Called once when the agent has stopped serving: close them here."""

    # -- which rollout

    def rollout_id_from_run(self, body: Mapping[str, Any] | object) -> str | None:
        """The rollout that a run body describes; null where it names none, or where neither observability nor token capture is on.

        `current_rollout_id()` answers inside `/run` in either case. Raises `InvalidRolloutId`.
        """
        if not (self.settings.observability_enabled or self.token_capture):
            return None
        return rollout_id_from_run_body(body)

    def url_path_for_run(self, url_path: str, body: Mapping[str, Any] | object) -> str:
        """`url_path` below the rollout's prefix; unchanged where `rollout_id_from_run` gives none. Raises `InvalidRolloutId`."""
        rollout_id = self.rollout_id_from_run(body)
        if rollout_id is None:
            return url_path
        return rollout_path_prefix(rollout_id, token_capture=self.token_capture) + url_path

    def base_url_for_run(self, base_url: str, body: Mapping[str, Any] | object) -> str:
        """A root URL (without /v1; the caller adds that after) with the rollout's prefix; unchanged without one. Raises `InvalidRolloutId`."""
        return apply_rollout_prefix(
            base_url, self.rollout_id_from_run(body), token_capture=self.token_capture
        )

    def url_path_for_request(self, url_path: str, request: Request | None) -> str:
        """`url_path` below the prefix under which `request` came, whatever the settings say; unchanged for a request without one, and for none.

        Raises `InvalidRolloutId`.
        """
        if request is None:
            return url_path
        rollout_id = request.path_params.get("rollout_id")
        if rollout_id is None:
            return url_path
        path: str = request.scope["path"]
        token = path.partition(ROLLOUT_PATH_PREFIX)[2].startswith(
            f"/{rollout_id}{TOKEN_CAPTURE_SEGMENT}/"
        )
        return rollout_path_prefix(rollout_id, token_capture=token) + url_path

    def resolve_model_base_url(self, name: str | None = None, rollout_id: str | None = None) -> str:
        """`http://host:port[/prefix]/v1` of the model server `name` of the configuration. Raises `SettingsError`, `InvalidRolloutId`."""
        return resolve_model_base_url(
            self.settings,
            name or self.model_server_name,
            rollout_id,
            token_capture=self.token_capture,
        )

    @property
    def model_server_name(self) -> str | None:
        """The model server that this agent's configuration names, null where it names none."""
        reference = self.config.get("model_server")
        name = reference.get("name") if isinstance(reference, Mapping) else None
        return name if isinstance(name, str) else None

    @property
    def model_server_url(self) -> str:
        """Root URL of that model server, or of the only one; what `base_url_for_run` takes. Raises `SettingsError`."""
        return model_server_root_url(self.settings, self.model_server_name)

    def trace_headers_for_run(self, body: Mapping[str, Any] | object) -> dict[str, str]:
        """Headers that put the agent's own calls and spans into the rollout's trace; empty without observability or before the run exists.

        Raises `InvalidRolloutId`.
        """
        directory = self.settings.model_call_capture_dir
        if not self.settings.observability_enabled or directory is None:
            return {}
        try:
            run = read_run(directory)
        except StoreError as error:
            log.warning("%s", error)
            return {}
        if run is None:
            return {}
        # Imported here: an agent without observability never loads the tracing room.
        from otel_gym.tracing.context import rollout_trace_headers

        return rollout_trace_headers(body, run)

    # -- the application

    @functools.cached_property
    def app(self) -> Starlette:
        """The Starlette application; routes may be added to it before it serves."""
        return self.setup_webserver()

    def setup_webserver(self) -> Starlette:
        """Build the application. Override to add routes."""
        prefixed = ROLLOUT_PATH_PREFIX + "/{rollout_id}"
        paths = (
            RESPONSES_PATH,
            prefixed + RESPONSES_PATH,
            prefixed + TOKEN_CAPTURE_SEGMENT + RESPONSES_PATH,
        )
        routes = [Route(path, self._on_responses, methods=["POST"]) for path in paths]
        run = Route(RUN_PATH, self._on_run, methods=["POST"])
        return Starlette(routes=[run, *routes], lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        await self.startup()
        try:
            yield
        finally:
            await self.shutdown()

    async def _on_run(self, request: Request) -> Response:
        answer = await self._run_answer(request)
        answer.headers.setdefault(NAME_HEADER, quote(self.name))
        return answer

    async def _run_answer(self, request: Request) -> Response:
        try:
            body = await json_object(request)
            rollout_id = rollout_id_from_run_body(body)
            with rollout_identity(rollout_id):
                result = await self._plays.play(
                    rollout_id, self.run(request, body), request.receive
                )
            return answer_of(self._with_agent(result))
        except Exception as error:  # noqa: BLE001 - whatever an agent raises is its rollout's result, told to the collector
            return self._failure(error, RUN_PATH)

    async def _on_responses(self, request: Request) -> Response:
        rollout_id = request.path_params.get("rollout_id")
        try:
            if rollout_id is not None:
                checked(rollout_id)
            body = await json_object(request)
            with rollout_identity(rollout_id):
                return answer_of(await self.responses(request, body))
        except Exception as error:  # noqa: BLE001 - an answer in the caller's shape instead of a bare 500
            return self._failure(error, RESPONSES_PATH)

    def _failure(self, error: Exception, path: str) -> Response:
        if isinstance(error, AnswerProblem):
            return problem_answer(error)
        if isinstance(error, InvalidRolloutId):
            return problem_answer(AnswerProblem(422, "invalid_rollout_id", str(error)))
        if isinstance(error, OtelGymError):
            log.error("agent %s: %s: %s", self.name, path, error)
        else:
            log.error("agent %s: %s failed", self.name, path, exc_info=error)
        return problem_answer(
            AnswerProblem(500, "agent_error", f"{type(error).__name__}: {error}"[:2000])
        )

    def _with_agent(self, result: Any) -> Any:
        """A mapping's result with the agent's name, where it does not say one."""
        if isinstance(result, Mapping) and "agent_ref" not in result:
            return {**result, "agent_ref": {"type": "responses_api_agents", "name": self.name}}
        return result

    def _own_request(self, request: Request, body: Mapping[str, Any]) -> Request:
        """The request that the agent would have sent itself for the rollout of `body`."""
        path = self.url_path_for_run(RESPONSES_PATH, body)
        rollout_id = self.rollout_id_from_run(body)
        parameters = {"rollout_id": rollout_id} if rollout_id is not None else {}
        scope = {
            **request.scope,
            "path": path,
            "raw_path": path.encode(),
            "path_params": parameters,
        }
        return Request(scope, request.receive)
