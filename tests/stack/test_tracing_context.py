"""An instrumented client calling through otel-gym, and an instrumented engine behind it: parents and links in a real Jaeger, by mode."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from opentelemetry import context as otel_context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from otel_gym.correlation.run import read_run
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from otel_gym.servers.model import build_served_model
from otel_gym.settings import settings_from
from otel_gym.tracing.context import rollout_trace_headers
from tests.tracing.records import RESPONSES

pytestmark = pytest.mark.stack


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """A real server on loopback, in a thread of its own."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="on")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


def provider(service: str, jaeger: Any) -> TracerProvider:
    made = TracerProvider(resource=Resource({"service.name": service, "host.name": "test"}))
    made.add_span_processor(
        SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{jaeger.otlp_http}/v1/traces"))
    )
    return made


class Traced:
    """What one traced call left in Jaeger."""

    def __init__(self, jaeger: Any, agent_trace: str, run_id: str, rollout_id: str) -> None:
        self.rollout_trace = trace_id(run_id, rollout_id)
        self.root = root_span_id(run_id, rollout_id)
        self.agent_trace = agent_trace
        self.spans: dict[str, dict[str, Any]] = {}
        for each in {agent_trace, self.rollout_trace}:
            for span in (jaeger.trace(each) or {"spans": []})["spans"]:
                self.spans[self._role(span)] = span

    @staticmethod
    def _role(span: dict[str, Any]) -> str:
        tags = {tag["key"]: tag["value"] for tag in span["tags"]}
        if tags.get("otel.scope.name") == "otel_gym":
            return "call"
        return {"client": "http client", "server": "engine"}.get(
            str(tags.get("span.kind")), "agent"
        )

    def parent(self, role: str) -> tuple[str, str] | None:
        """(trace, span) of the parent."""
        return self._reference(role, "CHILD_OF")

    def link(self, role: str) -> tuple[str, str] | None:
        """(trace, span) of the link."""
        return self._reference(role, "FOLLOWS_FROM")

    def place(self, role: str) -> tuple[str, str]:
        """(trace, span) of the span itself."""
        span = self.spans[role]
        return span["traceID"], span["spanID"]

    def _reference(self, role: str, kind: str) -> tuple[str, str] | None:
        found = [each for each in self.spans[role]["references"] if each["refType"] == kind]
        assert len(found) <= 1
        return (found[0]["traceID"], found[0]["spanID"]) if found else None


def call(jaeger: Any, directory: Path, mode: str, *, in_rollout: bool = False) -> Traced:
    """One chat call by an instrumented client through otel-gym to an instrumented engine."""
    engine_provider, client_provider = provider("engine", jaeger), provider("agent", jaeger)

    async def chat(request: Request) -> JSONResponse:
        await request.body()
        return JSONResponse(RESPONSES["chat"])

    engine = OpenTelemetryMiddleware(
        Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])]),
        tracer_provider=engine_provider,
        exclude_spans=["receive", "send"],
    )
    settings = settings_from(
        {
            "observability_enabled": True,
            "model_call_capture_dir": str(directory),
            "otel_gym": {"trace_context": mode, "otlp_endpoint": jaeger.otlp_http},
        }
    )
    with serving(engine) as engine_url:
        server = settings.model_server().model_copy(update={"base_url": engine_url})
        app, observability = build_served_model(settings, server)
        with serving(app) as url:
            run = read_run(directory)
            assert run is not None
            tracer = client_provider.get_tracer("agent")
            client = httpx.Client()
            HTTPXClientInstrumentor.instrument_client(client, tracer_provider=client_provider)
            body = {"_ng_rollout_id": "7-3"}
            headers = rollout_trace_headers(body, run) if in_rollout else {}
            token = otel_context.attach(TraceContextTextMapPropagator().extract(headers))
            try:
                with tracer.start_as_current_span("agent step") as step:
                    answer = client.post(
                        f"{url}/ng-rollout/7-3/v1/chat/completions",
                        json={"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
                    )
                    assert answer.status_code == 200
                    agent_trace = f"{step.get_span_context().trace_id:032x}"
            finally:
                otel_context.detach(token)
                client.close()
    observability.close()
    engine_provider.shutdown()
    client_provider.shutdown()
    return Traced(jaeger, agent_trace, run.run_id, "7-3")


def test_mode_link(jaeger: Any, tmp_path: Path) -> None:
    """The call stands in its rollout's trace and links to the client's span; the engine nests under the call."""
    traced = call(jaeger, tmp_path, "link")
    assert traced.place("call")[0] == traced.rollout_trace != traced.agent_trace
    assert traced.parent("call") == (traced.rollout_trace, traced.root)
    assert traced.link("call") == traced.place("http client")
    assert traced.parent("engine") == traced.place("call")


def test_mode_parent(jaeger: Any, tmp_path: Path) -> None:
    """The call stands in the client's trace below the client's span and links to the rollout; the engine nests under the call."""
    traced = call(jaeger, tmp_path, "parent")
    assert traced.place("call")[0] == traced.agent_trace
    assert traced.parent("call") == traced.place("http client")
    assert traced.link("call") == (traced.rollout_trace, traced.root)
    assert traced.parent("engine") == traced.place("call")


def test_mode_ignore(jaeger: Any, tmp_path: Path) -> None:
    """The client's trace leaves no trace of itself in the call's span; the engine nests under the call."""
    traced = call(jaeger, tmp_path, "ignore")
    assert traced.parent("call") == (traced.rollout_trace, traced.root)
    assert traced.link("call") is None
    assert traced.parent("engine") == traced.place("call")


@pytest.mark.parametrize("mode", ["link", "parent", "ignore"])
def test_an_agent_in_the_rollouts_trace(jaeger: Any, tmp_path: Path, mode: str) -> None:
    """With rollout_trace_headers everything is one trace, whatever the mode: agent, client, call and engine, each below the one before."""
    traced = call(jaeger, tmp_path, mode, in_rollout=True)
    assert traced.agent_trace == traced.rollout_trace
    assert traced.parent("agent") == (traced.rollout_trace, traced.root)
    assert traced.parent("http client") == traced.place("agent")
    assert traced.parent("call") == traced.place("http client")
    assert traced.link("call") is None
    assert traced.parent("engine") == traced.place("call")
