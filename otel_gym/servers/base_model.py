"""The base class of a model server that answers in Python instead of forwarding to an engine."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from otel_gym.capture.record import ModelRef
from otel_gym.servers.answers import AnswerProblem, answer_of, encode_json, json_object
from otel_gym.servers.model import Observability, install_model_call_capture
from otel_gym.servers.refusal import Reason, error_body
from otel_gym.servers.upgrades import UpgradeGuard
from otel_gym.settings import ModelServerSettings, Settings, settings_from

Handler = Callable[[Request, dict[str, Any]], Awaitable[Any]]

ROUTES: Final[Mapping[str, str]] = {
    "responses": "/v1/responses",
    "chat_completions": "/v1/chat/completions",
    "messages": "/v1/messages",
    "completions": "/v1/completions",
}
"""Method of the class and path that it answers."""


class SimpleResponsesAPIModel:
    """An ASGI application; subclass it and write some of `responses`, `chat_completions`, `messages`, `completions`.

    Each takes (request, body) and returns a mapping, a model, a Response, or for a stream an async iterator of the dialect's events (mappings; bytes go out as
    they are). Only what a subclass writes has a route. Capture is mounted as the settings say; `settings` is `Settings` or a mapping of the file's shape.
    """

    name: str = "model"

    def __init__(
        self, settings: Settings | Mapping[str, Any] | None = None, *, name: str | None = None
    ) -> None:
        self.settings = (
            settings if isinstance(settings, Settings) else settings_from(settings or {})
        )
        self.name = name or self.name
        self.config = self.settings.model_servers.get(self.name) or ModelServerSettings(
            name=self.name
        )
        self.observability: Observability | None = None
        """What was installed for capture; null until `app` is built."""

    @property
    def model_ref(self) -> ModelRef:
        """How records refer to this server."""
        return ModelRef(type="responses_api_models", name=self.name)

    async def responses(self, request: Request, body: dict[str, Any]) -> Any:
        """Answer a Responses API request."""
        raise NotImplementedError

    async def chat_completions(self, request: Request, body: dict[str, Any]) -> Any:
        """Answer a Chat Completions request."""
        raise NotImplementedError

    async def messages(self, request: Request, body: dict[str, Any]) -> Any:
        """Answer an Anthropic Messages request."""
        raise NotImplementedError

    async def completions(self, request: Request, body: dict[str, Any]) -> Any:
        """Answer a Completions request."""
        raise NotImplementedError

    @functools.cached_property
    def app(self) -> Starlette:
        """The Starlette application with capture; routes may be added to it before it serves."""
        app = self.setup_webserver()
        app.add_middleware(UpgradeGuard)
        self.observability = install_model_call_capture(
            app, self.settings, model_server_name=self.name
        )
        return app

    def setup_webserver(self) -> Starlette:
        """Build the application without capture. Override to add routes."""
        routes = [
            Route(path, functools.partial(_answer, getattr(self, method)), methods=["POST"])
            for method, path in ROUTES.items()
            if getattr(type(self), method) is not getattr(SimpleResponsesAPIModel, method)
        ]
        return Starlette(routes=routes, exception_handlers={Exception: _on_exception})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


async def _answer(handler: Handler, request: Request) -> Response:
    path = request.url.path
    try:
        body = await json_object(request)
        result = await handler(request, body)
        if isinstance(result, AsyncIterator):
            return StreamingResponse(_events(result, path), media_type="text/event-stream")
        if body.get("stream") is True and not isinstance(result, Response):
            raise AnswerProblem(400, "not_streaming", "this model server does not stream")
    except AnswerProblem as problem:
        content = error_body(path, Reason(problem.status, problem.code), str(problem))
        return Response(content, status_code=problem.status, media_type="application/json")
    return answer_of(result)


async def _events(events: AsyncIterator[Any], path: str) -> AsyncIterator[bytes]:
    """The dialect's event stream: named events where the dialect names them, `[DONE]` at the end where it has that."""
    named = path.endswith(("/responses", "/messages"))
    raw = False
    async for event in events:
        if isinstance(event, (bytes, str)):
            raw = True
            yield event.encode() if isinstance(event, str) else event
            continue
        data = encode_json(event)
        kind = event.get("type") if named and isinstance(event, Mapping) else None
        yield (b"event: %s\n" % str(kind).encode() if kind else b"") + b"data: %s\n\n" % data
    if not named and not raw:
        yield b"data: [DONE]\n\n"


async def _on_exception(request: Request, error: Exception) -> Response:
    """The 500 of an exception that has passed capture, in the caller's dialect; the server logs the exception itself."""
    content = error_body(request.url.path, Reason(500, "model_server_error"), type(error).__name__)
    return Response(content, status_code=500, media_type="application/json")
