"""The middleware decides: which calls become records, which are only forwarded, and that nothing else changes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from otel_gym.capture.current import current_call, current_rollout_id
from otel_gym.capture.middleware import CaptureMiddleware
from otel_gym.counters import counted
from tests.capture.asgi import Call, Rig, answering
from tests.engines.serving import Served


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "captures")
    yield rig
    rig.close()


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/responses", "responses"),
        ("/v1/chat/completions", "chat"),
        ("/v1/messages", "messages"),
        ("/v1/completions", "completions"),
        ("/v1/v1/messages", "messages"),
        ("/responses", "responses"),
        ("//v1/messages", "messages"),
    ],
)
async def test_a_prefixed_post_to_a_model_route_is_recorded(
    rig: Rig, path: str, dialect: str
) -> None:
    """Each of the four routes, in each spelling, gives one record of its dialect."""
    seen: list[tuple[str, str]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        call = current_call()
        assert call is not None
        seen.append((scope["path"], call.model_call_id))
        await answering(b"{}")(scope, receive, send)

    await Call(rig, f"/ng-rollout/7-2{path}").run(rig.wrap(app))
    (line,) = rig.lines()
    assert line["dialect"] == dialect
    assert seen[0][0] in (
        "/v1/responses",
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/completions",
    )
    assert seen[0][1] == line["model_call_id"]
    assert line["model_ref"] == {"type": "responses_api_models", "name": "policy"}
    assert line["rollout_id"] == "7-2"
    assert current_call() is None and current_rollout_id() is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/ng-rollout/7-2/v1/responses"),
        ("HEAD", "/ng-rollout/7-2/api/hello"),
        ("POST", "/ng-rollout/7-2/v1/messages/count_tokens"),
        ("POST", "/ng-rollout/7-2/tokenize"),
        ("POST", "/ng-rollout/7-2/v1/embeddings"),
    ],
)
async def test_other_calls_of_a_rollout_are_forwarded_without_a_record(
    rig: Rig, method: str, path: str
) -> None:
    """Only generating calls count; the application still learns which rollout it serves."""
    rollouts: list[str | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        rollouts.append(current_rollout_id())
        assert current_call() is None
        await answering(b"{}")(scope, receive, send)

    call = await Call(rig, path, method=method).run(rig.wrap(app))
    assert call.bodies == [b"{}"] and rollouts == ["7-2"] and rig.lines() == []


async def test_an_unprefixed_model_call_is_served_and_counted(rig: Rig) -> None:
    """Without a prefix nothing is recorded, but the count says that calls went by unseen."""
    before = counted("calls.unprefixed")
    call = await Call(rig, "/v1/responses").run(rig.wrap(answering(b"{}")))
    assert call.bodies == [b"{}"] and counted("calls.unprefixed") == before + 1
    assert list(rig.store.rollouts()) == []


async def test_an_invalid_id_is_served_counted_and_logged_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """A rollout id that breaks the grammar never stops a call, never makes a file, and is told once per cause."""
    before = counted("ids.invalid")
    app = rig.wrap(answering(b"{}"))
    with caplog.at_level(logging.WARNING, "otel_gym.capture"):
        for _ in range(3):
            call = await Call(rig, "/ng-rollout/..hidden/v1/responses").run(app)
            assert call.bodies == [b"{}"]
    assert counted("ids.invalid") == before + 3
    assert len(caplog.records) == 1 and "..hidden" in caplog.text
    assert list(rig.store.rollouts()) == []


async def test_only_listed_rollouts_are_captured_where_a_list_is_given(tmp_path: Path) -> None:
    """With patterns of rollout ids, a caller cannot write into a file of its own choosing."""
    rig = Rig(tmp_path / "captures", capture_rollout_ids=("7-*",))
    app = rig.wrap(answering(b"{}"))
    await Call(rig, "/ng-rollout/7-2/v1/responses").run(app)
    await Call(rig, "/ng-rollout/8-1/v1/responses").run(app)
    assert list(rig.store.rollouts()) == ["7-2"]
    rig.close()


async def test_without_capture_prefixed_urls_still_route(tmp_path: Path) -> None:
    """With observability off the prefix comes off, the rollout is known, and nothing is written."""
    rig = Rig(tmp_path / "captures")
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["path"], current_rollout_id(), current_call()))
        await answering(b"{}")(scope, receive, send)

    await Call(rig).run(CaptureMiddleware(app, capture=None))
    assert seen == [("/v1/chat/completions", "7-2", None)] and list(rig.store.rollouts()) == []
    rig.close()


def _api(**options: Any) -> Starlette:
    async def responses(request: Request) -> JSONResponse:
        return JSONResponse({"id": "r", "url": str(request.url)})

    async def files(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.path_params["name"])

    return Starlette(
        routes=[
            Route("/v1/responses", responses, methods=["POST"]),
            Route("/v1/things/", responses, methods=["POST", "GET"]),
            Route("/v1/files/{name:path}", files),
        ],
        **options,
    )


def test_a_redirect_for_a_trailing_slash_keeps_the_prefix(rig: Rig) -> None:
    """A real application's own slash redirect leads back under the rollout, so the call that follows is still its."""
    with Served(rig.wrap(_api())) as served, httpx.Client() as client:
        answer = client.get(f"{served.url}/ng-rollout/7-2/v1/things?x=1")
        assert answer.status_code == 307
        assert answer.headers["location"] == f"{served.url}/ng-rollout/7-2/v1/things/?x=1"
        assert client.get(answer.headers["location"]).status_code == 200


def test_a_trailing_slash_on_a_model_route_is_recorded_at_once(rig: Rig) -> None:
    """A model route with a slash too many needs no redirect: it is the route."""
    with Served(rig.wrap(_api())) as served:
        answer = httpx.post(f"{served.url}/ng-rollout/7-2/v1/responses/", json={})
        assert answer.status_code == 200
    assert len(rig.lines()) == 1


def test_behind_a_mount_calls_are_recorded_and_escapes_kept(rig: Rig) -> None:
    """An application with capture that is mounted below another one sees prefixed calls as its own."""
    outer = Starlette(routes=[Mount("/policy", app=rig.wrap(_api()))])
    with Served(outer) as served:
        assert (
            httpx.post(f"{served.url}/policy/ng-rollout/7-2/v1/responses", json={}).status_code
            == 200
        )
        assert httpx.get(f"{served.url}/policy/ng-rollout/7-2/v1/files/a%20b").text == "a b"
    assert len(rig.lines()) == 1
