"""The agent server on the wire: routes, identity, results, and how a run ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from otel_gym.capture.current import current_rollout_id
from otel_gym.servers.agent import SimpleResponsesAPIAgent
from otel_gym.servers.identity import RolloutIdFilter
from otel_gym.settings import settings_from
from tests.engines.serving import Served

BODY = {"_ng_task_index": 7, "_ng_rollout_index": 2, "_ng_attempt_index": 1}


class Agent(SimpleResponsesAPIAgent):
    """Tells what it sees; its behaviour is chosen by the body."""

    name = "teller"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.started = asyncio.Event()
        self.cancelled = 0

    async def run(self, request: Request, body: dict[str, Any]) -> Any:
        if body.get("raise"):
            raise RuntimeError(body["raise"])
        if body.get("wait"):
            self.started.set()
            try:
                await asyncio.sleep(body["wait"])
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if body.get("text"):
            return PlainTextResponse("as it is")
        return {"identity": current_rollout_id(), "path": self.url_path_for_run("/v1/x", body)}

    async def responses(self, request: Request, body: dict[str, Any]) -> Any:
        return {
            "identity": current_rollout_id(),
            "path": self.url_path_for_request("/v1/x", request),
        }


class Inner(SimpleResponsesAPIAgent):
    """An agent that is all in `responses`."""

    async def responses(self, request: Request, body: dict[str, Any]) -> Any:
        return {"asked": body, "path": self.url_path_for_request("/v1/x", request)}


def _client(agent: SimpleResponsesAPIAgent) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(agent), base_url="http://agent")


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
async def test_identity_does_not_depend_on_capture(on: bool) -> None:
    """Inside /run the rollout is known whether or not observability is on; only the prefix depends on it."""
    settings = {"observability_enabled": on, "model_call_capture_dir": "/captures" if on else None}
    async with _client(Agent(settings)) as client:
        result = (await client.post("/run", json=BODY)).json()
    assert result["identity"] == "7-2-a1"
    assert result["path"] == ("/ng-rollout/7-2-a1/v1/x" if on else "/v1/x")
    assert result["agent_ref"] == {"type": "responses_api_agents", "name": "teller"}
    assert current_rollout_id() is None


@pytest.mark.parametrize(
    ("path", "identity", "answer"),
    [
        ("/v1/responses", None, "/v1/x"),
        ("/ng-rollout/7-2/v1/responses", "7-2", "/ng-rollout/7-2/v1/x"),
        (
            "/ng-rollout/7-2/training-token-capture/v1/responses",
            "7-2",
            "/ng-rollout/7-2/training-token-capture/v1/x",
        ),
    ],
)
async def test_responses_routes(path: str, identity: str | None, answer: str) -> None:
    """Every agent answers /v1/responses, with and without the prefix, and calls from there keep the prefix."""
    async with _client(Agent()) as client:
        assert (await client.post(path, json={})).json() == {"identity": identity, "path": answer}


async def test_default_run_asks_responses() -> None:
    """An agent without a run of its own answers /run with its responses(), inside the rollout's prefix."""
    settings = {"observability_enabled": True, "model_call_capture_dir": "/captures"}
    async with _client(Inner(settings)) as client:
        body = {**BODY, "responses_create_params": {"input": "hi"}}
        result = (await client.post("/run", json=body)).json()
        refused = await client.post("/run", json=BODY)
    assert result["response"] == {"asked": {"input": "hi"}, "path": "/ng-rollout/7-2-a1/v1/x"}
    assert result["_ng_task_index"] == 7
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "no_input"


@pytest.mark.parametrize(
    ("path", "content", "status", "code"),
    [
        ("/run", b"{", 400, "invalid_json"),
        ("/run", b"[1]", 400, "invalid_json"),
        ("/run", b'{"_ng_rollout_id": "a/b"}', 422, "invalid_rollout_id"),
        ("/run", b'{"raise": "boom"}', 500, "agent_error"),
        ("/v1/responses", b"nope", 400, "invalid_json"),
        ("/ng-rollout/.hid/v1/responses", b"{}", 422, "invalid_rollout_id"),
    ],
)
async def test_bad_requests(path: str, content: bytes, status: int, code: str) -> None:
    """Whatever is wrong with a request, or goes wrong in an agent, is an error object with a code."""
    async with _client(Agent()) as client:
        answer = await client.post(path, content=content)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code


async def test_a_response_object_goes_out_as_it_is() -> None:
    """An agent that builds its own Response decides every byte of the answer."""
    async with _client(Agent()) as client:
        answer = await client.post("/run", json={"text": True})
    assert answer.text == "as it is"


async def test_no_responses() -> None:
    """An agent that has no responses() says so with 501."""

    class Bare(SimpleResponsesAPIAgent):
        pass

    async with _client(Bare()) as client:
        assert (await client.post("/v1/responses", json={})).status_code == 501


async def test_run_ends_with_its_client() -> None:
    """When the caller of /run goes away the rollout is cancelled, so that it makes no calls for nobody."""
    agent = Agent()
    loop = asyncio.get_running_loop()
    cancelled = loop.create_future()
    original = agent.run

    async def run(request: Request, body: dict[str, Any]) -> Any:
        try:
            return await original(request, body)
        except asyncio.CancelledError:
            cancelled.get_loop().call_soon_threadsafe(cancelled.set_result, True)
            raise

    agent.run = run  # type: ignore[method-assign]
    with Served(agent) as served:
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ReadTimeout):
                await client.post(f"{served.url}/run", json={**BODY, "wait": 60}, timeout=0.5)
        assert await asyncio.wait_for(cancelled, 20)


async def test_run_ends_with_its_next_start() -> None:
    """A rollout that is asked for again is cancelled first, and its first caller is told that with 409."""
    agent = Agent()
    async with _client(agent) as client:
        first = asyncio.ensure_future(client.post("/run", json={**BODY, "wait": 60}))
        await agent.started.wait()
        second = await client.post("/run", json=BODY)
        answer = await first
    assert second.status_code == 200
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "superseded")
    assert agent.cancelled == 1


async def test_identity_in_logs_and_spans(caplog: pytest.LogCaptureFixture) -> None:
    """Log lines and spans made inside a rollout carry its id, those outside do not."""
    from otel_gym.servers.span_identity import RolloutIdSpanProcessor

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(RolloutIdSpanProcessor())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    log = logging.getLogger("tests.agent")
    caplog.handler.addFilter(RolloutIdFilter())

    class Traced(SimpleResponsesAPIAgent):
        async def run(self, request: Request, body: dict[str, Any]) -> Any:
            with tracer.start_as_current_span("tool"):
                log.warning("using a tool")
            return {}

    async with _client(Traced()) as client:
        await client.post("/run", json=BODY)
    with tracer.start_as_current_span("outside"):
        log.warning("outside")
    ids = {r.message: r.rollout_id for r in caplog.records if r.name == "tests.agent"}  # type: ignore[attr-defined]
    assert ids == {"using a tool": "7-2-a1", "outside": ""}
    spans = {one.name: dict(one.attributes or {}) for one in exporter.get_finished_spans()}
    assert spans == {"tool": {"otel_gym.rollout.id": "7-2-a1"}, "outside": {}}


def test_settings_block_is_the_agents_config() -> None:
    """An agent reads its own block of the configuration by its name."""
    raw = {"solver": {"responses_api_agents": {"simple": {"steps": 3}}}}
    assert Agent(settings_from(raw), name="solver").config["steps"] == 3
