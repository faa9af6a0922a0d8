"""`collect_rollouts`: every task's rollouts asked of an agent, each result on disk as soon as it is there, and resumable at any point.

Two files grow: the output, one row a finished rollout in the order in which they finish, and beside it the failures, one row a failed attempt. What stands
in neither was never finished, and `resume` dispatches exactly that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from otel_gym.capture.store import CaptureStore
from otel_gym.correlation.run import Run, open_run
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from otel_gym.counters import count
from otel_gym.errors import OtelGymError, StoreError, UsageProblem
from otel_gym.rollouts.attach import ATTACHMENT_KEY, calls_by_agent, model_call_capture
from otel_gym.rollouts.dispatch import AgentClient, RolloutFailure
from otel_gym.rollouts.ending import (
    failure_of,
    failure_row,
    result_row,
    rollout_record,
)
from otel_gym.rollouts.files import ResultFiles, refuse_overwriting
from otel_gym.rollouts.options import Collected, CollectOptions
from otel_gym.rollouts.progress import CollectProgress, Tally
from otel_gym.rollouts.state import Dispatch, State, changed_tasks, read_state
from otel_gym.rollouts.tasks import NO_PERSIST, TASK_DIGEST, plan, read_rows
from otel_gym.servers.file_limit import file_limit
from otel_gym.settings import Settings
from otel_gym.tracing.rollout import RolloutRecord, rollout_record_path, write_rollout_record

log: Final = logging.getLogger("otel_gym.rollouts")

_OTHER_FILES: Final = 128
"""Files that a collection has open beside one socket for each rollout in flight."""
_LAST_WORK_S: Final = 10.0
"""How long a stopped collection waits for results that are already there to reach the disk."""


async def collect_rollouts(
    settings: Settings,
    tasks: Path | Iterable[Mapping[str, Any]],
    options: CollectOptions,
    *,
    on_progress: Callable[[CollectProgress], None] | None = None,
    on_problem: Callable[[str], None] | None = None,
    offer: Callable[[RolloutRecord], object] | None = None,
) -> Collected:
    """Collect the rollouts of `tasks`, a JSONL file or its rows; see `Collector` for the rest."""
    collector = Collector(
        settings, tasks, options, on_progress=on_progress, on_problem=on_problem, offer=offer
    )
    return await collector.run()


class Collector:
    """One run of a collection.

    `on_problem` is told of everything that goes wrong, in one line each; `offer` gets each rollout record once it is on disk, to export its span. With
    observability on, the settings' capture directory is that of the model servers, and every row gets its attachment.
    """

    def __init__(
        self,
        settings: Settings,
        tasks: Path | Iterable[Mapping[str, Any]],
        options: CollectOptions,
        *,
        on_progress: Callable[[CollectProgress], None] | None = None,
        on_problem: Callable[[str], None] | None = None,
        offer: Callable[[RolloutRecord], object] | None = None,
    ) -> None:
        self._tasks = tasks
        self._options = options
        self._on_progress = on_progress or (lambda _: None)
        self._on_problem = on_problem or log.warning
        self._offer = offer
        self._tally = Tally(0)
        self._ending: set[asyncio.Task[None]] = set()
        self._store: CaptureStore | None = None
        self._run: Run | None = None
        if settings.observability_enabled and settings.model_call_capture_dir is not None:
            self._directory = settings.model_call_capture_dir
            try:
                self._store = CaptureStore(
                    self._directory,
                    file_mode=settings.otel_gym.capture_file_mode,
                    directory_mode=settings.otel_gym.capture_directory_mode,
                )
                self._run = open_run(
                    self._directory,
                    run_id=settings.otel_gym.run_id,
                    file_mode=settings.otel_gym.capture_file_mode,
                )
            except (StoreError, OSError) as error:
                raise UsageProblem(f"captures cannot be attached: {error}") from None

    def drain(self) -> None:
        """Dispatch nothing more; `run` returns when what is in flight has ended. Cancel `run` to stop at once: what is in flight then is not written."""
        self._tally.draining = True
        self._progress()

    async def run(self) -> Collected:
        """Collect. Raises `UsageProblem` for input that cannot be used at all and for an agent that is not there."""
        options = self._options
        source, rows = self._rows()
        planned, problems = plan(
            rows, num_repeats=options.num_repeats, limit=options.limit, source=source
        )
        if isinstance(self._tasks, Path) and not planned and not problems:
            raise UsageProblem(f"{source}: holds no task; give one JSON object a line")
        refuse_overwriting(options, self._tasks)
        agent = AgentClient(
            options.agent_url,
            timeout_s=options.timeout_s,
            max_response_bytes=options.max_response_bytes,
        )
        try:
            with ResultFiles(options) as files:
                # Read when no other collection can write any more.
                state = self._state()
                changed = changed_tasks(state, planned, options.output)
                problems += changed
                for problem in (*problems, *state.problems):
                    self._on_problem(problem)
                dispatches, done, exhausted = state.remaining(planned, options.max_attempts)
                self._tally = Tally(len(dispatches), draining=self._tally.draining)
                if dispatches:
                    await agent.check()
                if not options.resume:
                    files.clear()
                await self._dispatch(iter(dispatches), agent, files)
        finally:
            await agent.aclose()
        tally = self._tally
        return Collected(
            planned=len(planned),
            done_before=done,
            exhausted=exhausted,
            completed=tally.completed,
            failed=tally.failed,
            left=tally.total - tally.completed - tally.failed,
            input_problems=len(problems),
            output=options.output,
            failures=options.failures,
        )

    def _rows(self) -> tuple[str, Iterator[tuple[int, Any]]]:
        if isinstance(self._tasks, Path):
            return str(self._tasks), read_rows(self._tasks)
        return "tasks", enumerate(self._tasks)

    def _state(self) -> State:
        options = self._options
        return read_state(options.output, options.failures) if options.resume else State()

    async def _dispatch(
        self, dispatches: Iterator[Dispatch], agent: AgentClient, files: ResultFiles
    ) -> None:
        """Work through `dispatches`, `concurrency` at a time, as far as this process may open sockets for them."""
        wanted, most = self._options.concurrency, max(1, file_limit() - _OTHER_FILES)
        at_once = min(wanted, most)
        if at_once < wanted:
            self._on_problem(
                f"concurrency {wanted}: only {most} rollouts at once, since this process may open {file_limit()} files (ulimit -n)"
            )
        workers = [
            asyncio.ensure_future(self._work(dispatches, agent, files))
            for _ in range(min(at_once, self._tally.total))
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            if self._ending:
                await asyncio.wait(self._ending, timeout=_LAST_WORK_S)

    async def _work(
        self, dispatches: Iterator[Dispatch], agent: AgentClient, files: ResultFiles
    ) -> None:
        for dispatch in dispatches:
            if self._tally.draining:
                return
            self._tally.in_flight += 1
            self._progress()
            try:
                await self._play(dispatch, agent, files)
            except (OtelGymError, OSError) as error:
                # Its evidence or its row can't be kept, and the next one's could not either.
                self._on_problem(f"rollout {dispatch.rollout_id}: {error}; no more are dispatched")
                self._tally.draining = True
            except Exception:
                # A fault of ours costs this rollout; it is in neither file, so --resume plays it again.
                log.exception("rollout %s", dispatch.rollout_id)
                self._on_problem(f"rollout {dispatch.rollout_id}: could not be kept; see the log")
            finally:
                self._tally.in_flight -= 1
                self._progress()

    async def _play(self, dispatch: Dispatch, agent: AgentClient, files: ResultFiles) -> None:
        if self._store is not None:
            await asyncio.to_thread(self._fence, self._store, dispatch.rollout_id)
        body = dispatch.rollout.body(dispatch.attempt)
        started_at = time.time()
        failure: RolloutFailure | None = None
        row: dict[str, Any] = {}
        try:
            row = result_row(body, await agent.run(body, self._headers(dispatch.rollout_id)))
            if row.get(NO_PERSIST):
                self._on_problem(
                    f"rollout {dispatch.rollout_id}: the agent was killed in it; --resume plays it again"
                )
                return
            failure = failure_of(row)
        except RolloutFailure as error:
            failure = error
        if failure is not None:
            row = failure_row(body, dispatch.rollout_id, failure, row)
            count("rollouts.failed")
            self._on_problem(f"rollout {dispatch.rollout_id}: {failure}")
        row[TASK_DIGEST] = dispatch.rollout.digest
        completed_at = time.time()
        await self._to_the_end(
            self._keep(dispatch, row, failure, agent, files, started_at, completed_at)
        )

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for `work`, which goes on where we are cancelled: a result that is there is kept."""
        task = asyncio.ensure_future(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)

    async def _keep(
        self,
        dispatch: Dispatch,
        row: dict[str, Any],
        failure: RolloutFailure | None,
        agent: AgentClient,
        files: ResultFiles,
        started_at: float,
        completed_at: float,
    ) -> None:
        """Attach, write the rollout record, then the row: a row in the output means that everything of it is there."""
        record: RolloutRecord | None = None
        if self._store is not None and (failure is None or failure.is_attempt):
            await self._settled(self._store, dispatch.rollout_id)
            attachment = await asyncio.to_thread(
                model_call_capture,
                self._store,
                dispatch.rollout_id,
                agent_calls=calls_by_agent(row),
            )
            row[ATTACHMENT_KEY] = attachment
            record = rollout_record(
                dispatch,
                row,
                attachment,
                started_at=started_at,
                completed_at=completed_at,
                agent_name=self._options.agent_name or agent.agent_name,
                failure=failure,
            )
            await asyncio.to_thread(write_rollout_record, self._directory, record)
        await (files.output if failure is None else files.failures).append(row)
        if failure is None:
            self._tally.completed += 1
        else:
            self._tally.failed += 1
        self._tally.last = dispatch.rollout_id
        if record is not None and self._offer is not None:
            self._offer(record)

    async def _settled(self, store: CaptureStore, rollout_id: str) -> None:
        """Wait until the rollout has no call in flight, bounded, without holding a thread meanwhile."""
        deadline = time.monotonic() + self._options.settle_timeout_s
        pause_s = 0.005
        while not await asyncio.to_thread(store.await_quiescence, rollout_id, 0.0):
            if time.monotonic() >= deadline:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.25)

    def _fence(self, store: CaptureStore, rollout_id: str) -> None:
        """Put away what an attempt that was killed has left under this id; what it still writes is kept apart.

        Raises `StoreError` or `OSError`.
        """
        # In this order: a call that is no longer pending is in the file.
        is_known = bool(store.pending(rollout_id)) or any(
            path(rollout_id).exists()
            for path in (store.path_for, store.packed_path_for, store.incomplete_path_for)
        )
        if is_known:
            store.clear(rollout_id)
        rollout_record_path(self._directory, rollout_id).unlink(missing_ok=True)

    def _headers(self, rollout_id: str) -> dict[str, str]:
        """W3C trace context that makes the rollout's span the parent of the agent's own."""
        if self._run is None:
            return {}
        run_id = self._run.run_id
        context = f"00-{trace_id(run_id, rollout_id)}-{root_span_id(run_id, rollout_id)}-01"
        return {"traceparent": context}

    def _progress(self) -> None:
        self._on_progress(self._tally.moment())
