"""The main job: engine, model server, agents; then what the files and the trace hold."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from otel_gym.capture.record import ModelCallRecord, build_model_call_record
from otel_gym.capture.store import CaptureStore
from otel_gym.correlation import trace_ids
from otel_gym.demo.agent_server import ScriptedAgentServer
from otel_gym.demo.engine import embedded_engine
from otel_gym.errors import StoreError, UsageProblem
from otel_gym.rollouts.collect import collect_rollouts
from otel_gym.rollouts.options import Collected, CollectOptions
from otel_gym.rollouts.tasks import read_rows
from otel_gym.servers.model import Observability, build_served_model
from otel_gym.settings import ModelServerSettings, Settings

MODEL_SERVER_NAME: Final = "policy_model"
SHUTDOWN_S: Final = 5
"""Longest wait for requests in flight when a server of the demo ends."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What a demo run left behind."""

    capture_dir: Path
    run_id: str
    calls: int
    """Calls that an agent saw answered."""
    spans_exported: int
    errors: int
    failures: dict[str, str]
    """Rollouts whose agent failed, with what it raised."""
    rollouts: dict[str, list[ModelCallRecord]]

    def to_json(self) -> dict[str, Any]:
        """The summary that `otel-gym demo --json` prints."""
        return {
            "rollouts": len(self.rollouts),
            "calls": self.calls,
            "records": sum(map(len, self.rollouts.values())),
            "spans_exported": self.spans_exported,
            "errors": self.errors,
            "capture_dir": str(self.capture_dir),
            "trace_ids": {one: trace_ids.trace_id(self.run_id, one) for one in self.rollouts},
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a demo has come."""

    stage: str
    done: int = 0
    total: int = 0


async def run_demo(
    settings: Settings, *, rollouts: int, turns: int, on_progress: Callable[[Progress], None]
) -> DemoResult:
    """Play `rollouts` rollouts of `turns` calls at once against the embedded engine and collect what was recorded.

    `settings` must have observability on and an absolute capture directory. Raises `UsageProblem` where the engine is not installed or the directory cannot be
    used, `OtelGymError` where a part does not start.
    """
    directory = settings.model_call_capture_dir
    assert directory is not None
    on_progress(Progress("loading the model"))
    with contextlib.ExitStack() as stack:
        engine_url = await asyncio.to_thread(stack.enter_context, embedded_engine())
        server = ModelServerSettings(
            name=MODEL_SERVER_NAME, type="llama_cpp", base_url=engine_url, provider="llama_cpp"
        )
        async with _serving(settings, server) as (url, observability):
            run = observability.run
            if run is None or observability.store is None:
                raise UsageProblem(
                    f"{directory}: cannot be written; choose another with --capture-dir"
                )
            calls = 0
            total = rollouts * turns
            on_progress(Progress("calling the model", 0, total))

            def on_call() -> None:
                nonlocal calls
                calls += 1
                on_progress(Progress("calling the model", calls, total))

            known = settings.model_copy(update={"model_servers": {server.name: _at(server, url)}})
            async with _listening(ScriptedAgentServer(known, on_call=on_call)) as agent_url:
                collected = await collect_rollouts(
                    known,
                    [{"turns": turns}] * rollouts,
                    CollectOptions(agent_url, directory / "rollouts.jsonl", concurrency=rollouts),
                    offer=observability.pipeline.offer_rollout if observability.pipeline else None,
                    on_problem=lambda _: None,
                )
            on_progress(Progress("exporting"))
            await asyncio.to_thread(observability.close)
            exported = observability.pipeline.exported if observability.pipeline is not None else 0
    store = CaptureStore(directory)
    records = {f"{task}-0": _read(store, f"{task}-0") for task in range(rollouts)}
    failed_calls = sum(
        one.error_category is not None for calls_ in records.values() for one in calls_
    )
    failures = _failures(collected)
    errors = failed_calls + len(failures)
    return DemoResult(directory, run.run_id, calls, exported, errors, failures, records)


def _failures(collected: Collected) -> dict[str, str]:
    """What went wrong, by rollout."""
    if not collected.failed:
        return {}
    rows = (row for _, row in read_rows(collected.failures))
    return {row["rollout_id"]: row["error"]["message"] for row in rows}


def _at(server: ModelServerSettings, url: str) -> ModelServerSettings:
    """The model server where it really listens."""
    return server.model_copy(update={"port": urlsplit(url).port})


@contextlib.asynccontextmanager
async def _serving(
    settings: Settings, server: ModelServerSettings
) -> AsyncIterator[tuple[str, Observability]]:
    """The model server on a free loopback port for the length of the context."""
    app, observability = build_served_model(settings, server)
    async with _listening(app) as url:
        yield url, observability


@contextlib.asynccontextmanager
async def _listening(app: ASGIApp) -> AsyncIterator[str]:
    """An application on a free loopback port for the length of the context; its root URL."""
    import uvicorn

    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="error",
        ws="none",
        access_log=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    listener = uvicorn.Server(config)
    # Ctrl-C is the caller's: it cancels the demo, which ends the servers in their order.
    listener.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    task = asyncio.create_task(listener.serve())
    try:
        while not listener.started:
            if task.done():
                await task
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.servers[0].sockets[0].getsockname()[1]}"
    finally:
        listener.should_exit = True
        await task


def _read(store: CaptureStore, rollout_id: str) -> list[ModelCallRecord]:
    try:
        lines, _invalid = store.read_available(rollout_id)
    except FileNotFoundError as error:
        raise StoreError(str(error)) from error
    return [build_model_call_record(raw, index) for index, raw in lines]
