"""A server that leaves export to a sidecar: real calls, a real sidecar process, a real Jaeger."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from otel_gym.servers.model import build_served_model
from otel_gym.settings import settings_from
from tests.stack.test_tracing_context import serving
from tests.stack.test_tracing_verify import PROGRAM, until, verified
from tests.tracing.records import RESPONSES

pytestmark = pytest.mark.stack


async def chat(request: Request) -> JSONResponse:
    await request.body()
    return JSONResponse(RESPONSES["chat"])


def test_a_sidecar_exports_what_the_server_only_records(jaeger: Any, tmp_path: Path) -> None:
    """The server has no pipeline and no meters; the sidecar, killed once in between, brings every call to Jaeger."""
    settings = settings_from(
        {
            "observability_enabled": True,
            "model_call_capture_dir": str(tmp_path),
            "otel_gym": {"export": "sidecar", "otlp_endpoint": jaeger.otlp_http},
        }
    )
    command = [*PROGRAM, "export", str(tmp_path), "--follow", "--endpoint", jaeger.otlp_http]
    environment = {**os.environ, "OTEL_METRICS_EXPORTER": "none"}

    def sidecar() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    engine = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    with serving(engine) as engine_url:
        server = settings.model_server().model_copy(update={"base_url": engine_url})
        app, observability = build_served_model(settings, server)
        assert observability.pipeline is None
        first = sidecar()
        try:
            with serving(app) as url, httpx.Client() as client:

                def call(number: int) -> None:
                    answer = client.post(
                        f"{url}/ng-rollout/{number % 4}-0/v1/chat/completions",
                        json={"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
                    )
                    assert answer.status_code == 200

                for number in range(20):
                    call(number)
                until(lambda: verified(tmp_path, jaeger)[0] == 0)
                first.kill()
                for number in range(20, 40):
                    call(number)
        finally:
            first.kill()
            first.wait()
    observability.close()
    second = sidecar()
    try:
        until(lambda: verified(tmp_path, jaeger)[0] == 0)
        assert verified(tmp_path, jaeger)[1].startswith("40 spans of 4 rollouts")
    finally:
        second.terminate()
        assert second.wait(30) == 0
