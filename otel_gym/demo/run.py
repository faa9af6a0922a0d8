"""The main job: engine, model server, agents; then what the files and the trace hold."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_gym.capture.record import ModelCallRecord, build_model_call_record
from otel_gym.capture.store import CaptureStore
from otel_gym.correlation import trace_ids
from otel_gym.correlation.run import Run
from otel_gym.demo.agent import ScriptedAgent
from otel_gym.demo.engine import embedded_engine
from otel_gym.errors import StoreError, UsageProblem
from otel_gym.servers.model import Observability, build_served_model
from otel_gym.settings import ModelServerSettings, Settings
from otel_gym.tracing.rollout import RolloutRecord, write_rollout_record

AGENT_NAME = "scripted_agent"
MODEL_SERVER_NAME = "policy_model"


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

            attempts = _Attempts(observability, directory, run)
            agents = [
                ScriptedAgent(url, number, f"{number}-0", turns) for number in range(rollouts)
            ]
            problems = await asyncio.gather(*(attempts.play(agent, on_call) for agent in agents))
            for agent in agents:
                await asyncio.to_thread(
                    observability.store.await_quiescence, agent.rollout_id, 10.0
                )
            on_progress(Progress("exporting"))
            await asyncio.to_thread(observability.close)
            exported = observability.pipeline.exported if observability.pipeline is not None else 0
    records = {
        agent.rollout_id: _read(CaptureStore(directory), agent.rollout_id) for agent in agents
    }
    failed_calls = sum(
        one.error_category is not None for calls_ in records.values() for one in calls_
    )
    failures = {one.rollout_id: why for one, why in zip(agents, problems, strict=True) if why}
    errors = failed_calls + len(failures)
    return DemoResult(directory, run.run_id, calls, exported, errors, failures, records)


class _Attempts:
    """Plays agents and writes a rollout record for each: the collector's part of a trace."""

    def __init__(self, observability: Observability, directory: Path, run: Run) -> None:
        self._observability = observability
        self._directory = directory
        self._run = run

    async def play(self, agent: ScriptedAgent, on_call: Callable[[], None]) -> str | None:
        """Play one rollout; what its agent raised, null where it did well."""
        started_at = time.time()
        problem: str | None = None
        try:
            await agent.run(on_call)
        except Exception as error:  # noqa: BLE001 - a failure is its rollout's outcome; the others go on
            problem = f"{type(error).__name__}: {error}"
        record = RolloutRecord(
            rollout_id=agent.rollout_id,
            started_at=started_at,
            completed_at=time.time(),
            agent=AGENT_NAME,
            task_index=agent.number,
            rollout_index=0,
            attempt_index=0,
            error=problem,
        )
        await asyncio.to_thread(write_rollout_record, self._directory, record)
        if self._observability.pipeline is not None:
            self._observability.pipeline.offer_rollout(record)
        return problem


@contextlib.asynccontextmanager
async def _serving(
    settings: Settings, server: ModelServerSettings
) -> AsyncIterator[tuple[str, Observability]]:
    """The model server on a free loopback port for the length of the context."""
    import uvicorn

    app, observability = build_served_model(settings, server)
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="warning", ws="none", access_log=False
    )
    listener = uvicorn.Server(config)
    listener.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(listener.serve())
    try:
        while not listener.started:
            if task.done():
                await task
            await asyncio.sleep(0.01)
        port = listener.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", observability
    finally:
        listener.should_exit = True
        await task


def _read(store: CaptureStore, rollout_id: str) -> list[ModelCallRecord]:
    try:
        lines, _invalid = store.read_available(rollout_id)
    except FileNotFoundError as error:
        raise StoreError(str(error)) from error
    return [build_model_call_record(raw, index) for index, raw in lines]
