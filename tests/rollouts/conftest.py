"""A whole stack on loopback: echo engine, capturing model server, agent server."""

from __future__ import annotations

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

        def make(fail: Fail | None = None, name: str = "captures") -> Stack:
            directory = tmp_path / name
            engine = EchoEngine(fail)
            engine_url = exits.enter_context(Served(engine, lifespan="off")).url
            raw: dict[str, Any] = {
                "observability_enabled": True,
                "model_call_capture_dir": str(directory),
            }
            server = ModelServerSettings(name="policy", base_url=engine_url)
            app = build_model_server(settings_from(raw), server)
            served = exits.enter_context(Served(app, lifespan="on"))
            raw["policy"] = {"responses_api_models": {"vllm_model": {"port": served.port}}}
            return Stack(settings_from(raw), directory, served.url, engine, exits)

        yield make


def write_rows(path: Path, rows: list[Any]) -> Path:
    """`rows` as JSONL; bytes go in as they are."""
    lines = [row if isinstance(row, bytes) else orjson.dumps(row) for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]
