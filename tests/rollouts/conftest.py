"""A whole stack on loopback: echo engine, capturing model server, agent server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.types import ASGIApp

from otel_gym.capture.store import CaptureStore
from otel_gym.servers.model import build_model_server
from otel_gym.settings import ModelServerSettings, Settings, settings_from
from tests.engines.serving import Served
from tests.rollouts.echo_engine import EchoEngine, Fail
from tools.backends.build import BackendUnavailable, program
from tools.backends.processes import Jaeger


@dataclass
class Stack:
    """The running parts."""

    settings: Settings
    """Observability on, the capture directory, and the model server `policy` at its port."""
    directory: Path
    model_server_url: str
    engine: EchoEngine
    _exits: ExitStack

    def serve(self, app: ASGIApp) -> str:
        """Serve one more application; its root URL."""
        return self._exits.enter_context(Served(app)).url

    @property
    def store(self) -> CaptureStore:
        """The capture directory."""
        return CaptureStore(self.directory)


MakeStack = Callable[..., Stack]


@pytest.fixture
def make_stack(tmp_path: Path) -> Iterator[MakeStack]:
    """Start an engine (that fails as told) and a capturing model server; all ends with the test."""
    with ExitStack() as exits:

        def make(fail: Fail | None = None, otlp_endpoint: str | None = None) -> Stack:
            directory = tmp_path / "captures"
            engine = EchoEngine(fail)
            engine_url = exits.enter_context(Served(engine, lifespan="off")).url
            raw: dict[str, Any] = {
                "observability_enabled": True,
                "model_call_capture_dir": str(directory),
                "otel_gym": {"otlp_endpoint": otlp_endpoint},
            }
            server = ModelServerSettings(name="policy", base_url=engine_url)
            app = build_model_server(settings_from(raw), server)
            served = exits.enter_context(Served(app, lifespan="on"))
            raw["policy"] = {"responses_api_models": {"vllm_model": {"port": served.port}}}
            return Stack(settings_from(raw), directory, served.url, engine, exits)

        yield make


@pytest.fixture(scope="session")
def own_jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """A real Jaeger for these tests; skips, or fails in CI, where it can't be had."""
    try:
        program("jaeger")
    except BackendUnavailable as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
    backend = Jaeger(tmp_path_factory.mktemp("jaeger"))
    backend.start()
    yield backend
    backend.stop()


def write_rows(path: Path, rows: list[Any]) -> Path:
    """`rows` as JSONL; bytes go in as they are."""
    lines = [row if isinstance(row, bytes) else orjson.dumps(row) for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]
