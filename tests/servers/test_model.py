"""Capture on anybody's application, and the whole model server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import pytest
from fastapi import FastAPI
from opentelemetry import trace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from otel_gym import install_model_call_capture
from otel_gym.counters import counted
from otel_gym.errors import SettingsError
from otel_gym.servers.model import build_model_server, engine_of
from otel_gym.settings import ModelServerSettings, Settings, settings_from
from tests.engines.recording import RecordingEngine, json_script, stream_script
from tests.engines.serving import Served


def settings_for(directory: Path, **bridge: Any) -> Settings:
    raw = {
        "observability_enabled": True,
        "model_call_capture_dir": str(directory),
        "otel_gym": bridge,
    }
    return settings_from(raw, environment={})


def lines(directory: Path, rollout_id: str = "7-2") -> list[dict[str, Any]]:
    path = directory / f"{rollout_id}.capture.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


@pytest.fixture
def engine() -> Iterator[RecordingEngine]:
    with RecordingEngine() as recording:
        recording.default = json_script(
            {"id": "x", "object": "response", "status": "completed", "output": []}
        )
        yield recording


def _starlette() -> Starlette:
    async def responses(request: Request) -> JSONResponse:
        span = trace.get_current_span().get_span_context()
        return JSONResponse(
            {"id": "r", "echo": await request.json(), "span": f"{span.span_id:016x}"}
        )

    return Starlette(routes=[Route("/v1/responses", responses, methods=["POST"])])


def _fastapi() -> Starlette:
    app = FastAPI()

    @app.post("/v1/responses")
    async def responses(request: Request) -> dict[str, Any]:
        span = trace.get_current_span().get_span_context()
        return {"id": "r", "echo": await request.json(), "span": f"{span.span_id:016x}"}

    return app


@pytest.mark.parametrize("make", [_starlette, _fastapi])
def test_anybodys_application_is_captured_by_one_call(tmp_path: Path, make: Any) -> None:
    """Calls under a rollout become records, the call's span is current in the handler, and shutting down closes the writer."""
    app = make()
    observability = install_model_call_capture(
        app, settings_for(tmp_path / "c"), model_server_name="policy"
    )
    with Served(app) as served:
        answer = httpx.post(f"{served.url}/ng-rollout/7-2/v1/responses", json={"model": "m"})
        assert answer.status_code == 200
        (line,) = lines(tmp_path / "c")
        assert answer.json()["span"] == line["trace"]["span_id"]
        assert httpx.post(f"{served.url}/v1/responses", json={}).json()["span"] == "0" * 16
    assert line["response"]["echo"] == line["request"] == {"model": "m"}
    assert line["model_ref"] == {"type": "responses_api_models", "name": "policy"}
    assert observability.writer is not None and observability.writer.waiting == 0


@pytest.mark.parametrize("how", ["positional", "keyword", "mapping only"])
def test_gyms_own_way_to_call_it_works(tmp_path: Path, how: str) -> None:
    """Gym hands its configuration over as an object or a mapping, by position or by its own name, with keywords that only mean something there."""
    app = _starlette()
    raw = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path / "c")}
    config = SimpleNamespace(**raw)
    install_model_call_capture(
        app,
        config if how == "positional" else None,
        config=config if how == "keyword" else None,
        model_server_name="policy",
        global_config_dict=raw if how == "mapping only" else None,
        num_workers=1,
        non_generating_requests=frozenset({("GET", "/health")}),
    )
    with Served(app) as served:
        httpx.post(f"{served.url}/ng-rollout/7-2/v1/responses", json={})
    assert len(lines(tmp_path / "c")) == 1


def test_a_misspelt_keyword_is_refused() -> None:
    """A keyword that nobody knows is an error, not a server that captures nothing."""
    with pytest.raises(TypeError, match="setings"):
        install_model_call_capture(_starlette(), setings={})  # type: ignore[call-arg]


def test_with_observability_off_prefixes_route_and_nothing_is_written(tmp_path: Path) -> None:
    """Off, the application answers prefixed calls and no directory appears."""
    app = _starlette()
    install_model_call_capture(app, {"model_call_capture_dir": str(tmp_path / "c")})
    with Served(app) as served:
        assert httpx.post(f"{served.url}/ng-rollout/7-2/v1/responses", json={}).status_code == 200
    assert not (tmp_path / "c").exists()


def test_a_directory_that_cannot_be_made_does_not_stop_the_server(
    tmp_path: Path, engine: RecordingEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """The server serves without capture, says so once and counts it."""
    (tmp_path / "file").write_text("")
    before = counted("capture.failures")
    with caplog.at_level(logging.WARNING, "otel_gym.servers"):
        app = build_model_server(
            settings_for(tmp_path / "file" / "c"), ModelServerSettings(base_url=engine.url)
        )
    with Served(app) as served:
        assert httpx.post(f"{served.url}/ng-rollout/7-2/v1/responses", json={}).status_code == 200
    assert counted("capture.failures") == before + 1 and "nothing will be captured" in caplog.text


def test_the_model_server_needs_an_engine(tmp_path: Path) -> None:
    """Without an engine there is nothing to serve, and the message says which key is missing."""
    with pytest.raises(SettingsError, match="base_url"):
        build_model_server(settings_for(tmp_path / "c"), ModelServerSettings(name="policy"))


@pytest.mark.parametrize(
    ("url", "provider", "expected"),
    [
        ("https://api.openai.com/v1", None, ("api.openai.com", 443, None)),
        ("http://vllm:8000/v1", "vllm", ("vllm", 8000, "vllm")),
        ("http://10.0.0.1", None, ("10.0.0.1", 80, None)),
    ],
)
def test_a_record_names_its_engine(
    url: str, provider: str | None, expected: tuple[Any, ...]
) -> None:
    """Address and port of the engine, the scheme's own port where none is written, and the configured provider."""
    found = engine_of(Settings(), ModelServerSettings(base_url=url, provider=provider))
    assert found is not None and (found["address"], found["port"], found["provider"]) == expected


def test_a_websocket_upgrade_is_answered_426_and_is_no_call(
    tmp_path: Path, engine: RecordingEngine
) -> None:
    """Clients that try a WebSocket first get 426, at which they fall back to POST; nothing is recorded or forwarded."""
    app = build_model_server(settings_for(tmp_path / "c"), ModelServerSettings(base_url=engine.url))
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    with Served(app) as served:
        for path in ("/ng-rollout/7-2/responses", "/v1/responses"):
            assert httpx.get(served.url + path, headers=upgrade).status_code == 426
    assert engine.received == [] and lines(tmp_path / "c") == []


def test_a_path_spelled_otherwise_reaches_the_engines_true_path(
    tmp_path: Path, engine: RecordingEngine
) -> None:
    """Missing, doubled and slashed spellings go to one engine path, their queries kept."""
    app = build_model_server(settings_for(tmp_path / "c"), ModelServerSettings(base_url=engine.url))
    with Served(app) as served:
        for path in (
            "/responses?beta=true",
            "/v1/v1/responses?beta=true",
            "//v1/responses?beta=true",
        ):
            assert (
                httpx.post(f"{served.url}/ng-rollout/7-2{path}", content=b"{}").status_code == 200
            )
    assert {one.target for one in engine.received} == {b"/v1/responses?beta=true"}
    assert len(lines(tmp_path / "c")) == 3


def test_the_engine_is_told_the_calls_span(tmp_path: Path, engine: RecordingEngine) -> None:
    """An engine that traces nests under our span: traceparent names it."""
    app = build_model_server(settings_for(tmp_path / "c"), ModelServerSettings(base_url=engine.url))
    with Served(app) as served:
        httpx.post(f"{served.url}/ng-rollout/7-2/v1/responses", content=b"{}")
    trace_part = lines(tmp_path / "c")[0]["trace"]
    expected = f"00-{trace_part['trace_id']}-{trace_part['span_id']}-01"
    assert engine.received[0].header("traceparent") == expected


def test_an_unreachable_engine_is_a_502_and_a_record(tmp_path: Path) -> None:
    """The caller gets an error in its own dialect, and the started call has left its record."""
    app = build_model_server(
        settings_for(tmp_path / "c"), ModelServerSettings(base_url="http://127.0.0.1:9")
    )
    with Served(app) as served:
        answer = httpx.post(f"{served.url}/ng-rollout/7-2/v1/messages", json={"model": "m"})
    assert answer.status_code == 502 and answer.json()["type"] == "error"
    (line,) = lines(tmp_path / "c")
    assert line["error_category"] == "upstream_error" and line["status_code"] == 502


def test_a_dead_backend_changes_nothing_of_a_call(tmp_path: Path, engine: RecordingEngine) -> None:
    """With nobody at the OTLP endpoint, calls are answered and recorded as ever, and closing is bounded."""
    settings = settings_for(
        tmp_path / "c", otlp_endpoint="http://127.0.0.1:9", shutdown_timeout=1.0
    )
    engine.answers(
        "/v1/chat/completions", stream_script(b'data: {"choices":[]}\n\n', b"data: [DONE]\n\n")
    )
    with Served(build_model_server(settings, ModelServerSettings(base_url=engine.url))) as served:
        answer = httpx.post(
            f"{served.url}/ng-rollout/7-2/v1/chat/completions", json={"stream": True}
        )
        assert answer.content == b'data: {"choices":[]}\n\ndata: [DONE]\n\n'
    assert [line["stream"]["terminal"] for line in lines(tmp_path / "c")] == ["complete"]


async def test_a_server_with_a_sidecar_leaves_what_it_counts(tmp_path: Path) -> None:
    """With export left to a sidecar the server writes its counters and its writer's times into the file that the sidecar reads."""
    app = _starlette()
    observability = install_model_call_capture(app, settings_for(tmp_path, export="sidecar"))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://policy"
    ) as client:
        answer = await client.post("/ng-rollout/7-2/v1/responses", json={"input": "Hi"})
    assert answer.status_code == 200
    observability.close()
    [path] = (tmp_path / ".otel-gym" / "metrics").glob("*.json")
    left = orjson.loads(path.read_bytes())
    assert left["closed"] and left["counters"]["records.written"] >= 1
    assert sum(count for count, _ in left["histograms"]["otel_gym.write.duration"]) == 1
