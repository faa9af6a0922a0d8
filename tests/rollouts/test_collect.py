"""Collection from end to end: agent, model server, engine, files."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from otel_gym.capture.store import read_model_call_records
from otel_gym.capture.writer import RecordWriter
from otel_gym.correlation.run import read_run
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from otel_gym.errors import UsageProblem
from otel_gym.rollouts import (
    ATTACHMENT_KEY,
    Collected,
    CollectOptions,
    Collector,
    CollectProgress,
    collect_rollouts,
)
from otel_gym.rollouts.attach import PAYLOADS
from otel_gym.settings import Settings
from otel_gym.tracing.rollout import RolloutRecord, read_rollout_record
from tests.rollouts.agents import CallingAgent
from tests.rollouts.conftest import MakeStack, Stack, read_rows, write_rows


def _options(url: str, tmp_path: Path, **more: Any) -> CollectOptions:
    return CollectOptions(agent_url=url, output=tmp_path / "out.jsonl", **more)


def _ids(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row[ATTACHMENT_KEY]["rollout_id"] for row in rows)


def _equals_file(stack: Stack, row: dict[str, Any]) -> None:
    attachment = row[ATTACHMENT_KEY]
    records = read_model_call_records(stack.store, attachment["rollout_id"])
    expected = [one.model_dump(mode="json", exclude=set(PAYLOADS)) for one in records]
    assert attachment["calls"] == expected
    assert attachment["metrics"]["with_resends"]["num_calls"] == len(records)


async def test_every_repeat_of_every_task(make_stack: MakeStack, tmp_path: Path) -> None:
    """Each task's repeats are played under their own ids, attached from their own files, and recorded with reward, agent and task."""
    stack = make_stack()
    agent = stack.serve(CallingAgent(stack.settings))
    tasks = write_rows(tmp_path / "tasks.jsonl", [{"q": number} for number in range(4)])
    moments: list[CollectProgress] = []
    offered: list[RolloutRecord] = []
    collected = await collect_rollouts(
        stack.settings,
        tasks,
        _options(agent, tmp_path, num_repeats=2, concurrency=4),
        on_progress=moments.append,
        offer=offered.append,
    )
    assert (collected.planned, collected.completed, collected.failed) == (8, 8, 0)
    assert collected.whole
    rows = read_rows(collected.output)
    assert _ids(rows) == sorted(f"{task}-{repeat}" for task in range(4) for repeat in range(2))
    run = read_run(stack.directory)
    assert run is not None
    for row in rows:
        _equals_file(stack, row)
        attachment = row[ATTACHMENT_KEY]
        assert "gaps" not in attachment
        assert (row["mixed"], len(attachment["calls"])) == (0, 2)
        record = read_rollout_record(stack.directory, attachment["rollout_id"])
        assert record is not None and record in offered
        assert (record.agent, record.reward, record.error) == ("caller", 0.5, None)
        assert record.task_index == row["_ng_task_index"]
        assert record.rollout_index == row["_ng_rollout_index"]
        assert record.totals.model_calls == 2 and record.totals.input_tokens == 20
        assert record.model_ref == {"type": "responses_api_models", "name": "policy"}
        assert record.started_at <= attachment["calls"][0]["started_at"] <= record.completed_at
    last = moments[-1]
    assert (last.total, last.completed, last.in_flight) == (8, 8, 0)
    assert last.rate_per_s and last.eta_s == 0
    assert max(one.in_flight for one in moments) == 4


async def test_failed_attempts_are_kept_apart(make_stack: MakeStack, tmp_path: Path) -> None:
    """A rollout whose engine fails ends in the failures file with its captures; its next attempt has its own id, file and row."""
    stack = make_stack(lambda request, number: 500 if number == 1 else None)
    agent = stack.serve(CallingAgent(stack.settings))
    tasks = write_rows(tmp_path / "tasks.jsonl", [{"q": 1}])
    problems: list[str] = []
    options = _options(agent, tmp_path)
    first = await collect_rollouts(stack.settings, tasks, options, on_problem=problems.append)
    assert (first.completed, first.failed, first.whole) == (0, 1, False)
    assert len(problems) == 1 and problems[0].startswith("rollout 0-0: the agent answered 500: ")
    [failed] = read_rows(first.failures)
    assert failed["rollout_id"] == "0-0"
    assert failed["error"]["code"] == "agent_status" and failed["error"]["status"] == 500
    assert failed[ATTACHMENT_KEY]["metrics"]["errors"] == {"upstream_error": 1}
    _equals_file(stack, failed)

    again = CollectOptions(agent_url=agent, output=options.output, resume=True)
    second = await collect_rollouts(stack.settings, tasks, again)
    assert second.whole
    [row] = read_rows(second.output)
    assert row["_ng_attempt_index"] == 1
    assert row[ATTACHMENT_KEY]["rollout_id"] == "0-0-a1"
    _equals_file(stack, row)
    before = read_rollout_record(stack.directory, "0-0")
    after = read_rollout_record(stack.directory, "0-0-a1")
    assert before is not None and after is not None
    assert (before.error_type, before.attempt_index) == ("agent_status", 0)
    assert (after.previous_rollout_id, after.attempt_index, after.error) == ("0-0", 1, None)

    third = await collect_rollouts(stack.settings, tasks, again)
    assert (third.done_before, third.completed, third.whole) == (1, 0, True)


async def test_attempts_are_bounded(make_stack: MakeStack, tmp_path: Path) -> None:
    """After max_attempts failures over all runs a rollout is left alone, and the summary says so."""
    stack = make_stack(lambda request, number: 500)
    agent = stack.serve(CallingAgent(stack.settings))
    tasks = write_rows(tmp_path / "tasks.jsonl", [{}])
    for expected in ((1, 0), (1, 0), (0, 1)):
        options = _options(agent, tmp_path, resume=True, max_attempts=2)
        collected = await collect_rollouts(
            stack.settings, tasks, options, on_problem=lambda _: None
        )
        assert (collected.failed, collected.exhausted) == expected
    assert [row["rollout_id"] for row in read_rows(collected.failures)] == ["0-0", "0-0-a1"]


async def test_a_killed_attempt_is_played_again_under_its_id(
    make_stack: MakeStack, tmp_path: Path
) -> None:
    """A stopped collection writes nothing of what was in flight; --resume plays it under the same id, and only the new calls are attached."""
    stack = make_stack()

    class Waiting(CallingAgent):
        hold = True

        async def run(self, request: Request, body: dict[str, Any]) -> Any:
            result = await super().run(request, body)
            if self.hold:
                held.set()
                await asyncio.sleep(600)
            return result

    held = asyncio.Event()
    loop = asyncio.get_running_loop()
    original = held.set
    held.set = lambda: loop.call_soon_threadsafe(original)  # type: ignore[assignment,method-assign]
    waiting = Waiting(stack.settings)
    agent = stack.serve(waiting)
    tasks = write_rows(tmp_path / "tasks.jsonl", [{}])
    running = asyncio.ensure_future(
        collect_rollouts(stack.settings, tasks, _options(agent, tmp_path))
    )
    await held.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(read_model_call_records(stack.store, "0-0")) == 2
    assert read_rows(tmp_path / "out.jsonl") == []
    waiting.hold = False
    collected = await collect_rollouts(
        stack.settings, tasks, _options(agent, tmp_path, resume=True)
    )
    assert collected.whole
    [row] = read_rows(collected.output)
    assert "_ng_attempt_index" not in row
    assert (row[ATTACHMENT_KEY]["rollout_id"], len(row[ATTACHMENT_KEY]["calls"])) == ("0-0", 2)
    _equals_file(stack, row)


async def test_a_straggler_of_a_killed_attempt(make_stack: MakeStack, tmp_path: Path) -> None:
    """A call that a killed attempt had begun ends in the stale file, even when it ends in the middle of the next play under the same id."""
    stack = make_stack()
    stack.engine.delay_s = 2.0

    class Detached(CallingAgent):
        straggler: asyncio.Task[Any] | None = None

        async def run(self, request: Request, body: dict[str, Any]) -> Any:
            if self.straggler is None:
                self.straggler = asyncio.ensure_future(super().run(request, {**body, "calls": 1}))
                await asyncio.sleep(600)
            result = await super().run(request, body)
            await asyncio.wait_for(self.straggler, 30)
            return result

    agent = stack.serve(Detached(stack.settings))
    running = asyncio.ensure_future(
        collect_rollouts(stack.settings, [{}], _options(agent, tmp_path))
    )
    while stack.engine.calls == 0:
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    stack.engine.delay_s = 0.0
    options = _options(agent, tmp_path, resume=True)
    collected = await collect_rollouts(stack.settings, [{}], options)
    [row] = read_rows(collected.output)
    assert len(row[ATTACHMENT_KEY]["calls"]) == 2
    assert row[ATTACHMENT_KEY]["gaps"] == [
        {"code": "model_call_capture_stale", "detail": "count=1"}
    ]
    [late] = [line.record for line in stack.store.iter_stale("0-0")]
    assert late is not None and late["request"]["messages"][0]["content"] == "0-0/0"


async def test_drain(make_stack: MakeStack, tmp_path: Path) -> None:
    """A drained collection ends what is in flight, dispatches nothing more, and resumes with the rest."""
    stack = make_stack()
    agent = stack.serve(CallingAgent(stack.settings))
    tasks = write_rows(tmp_path / "tasks.jsonl", [{}] * 6)
    collector: Collector

    def on_progress(moment: CollectProgress) -> None:
        if moment.completed == 2 and not moment.draining:
            collector.drain()

    options = _options(agent, tmp_path, concurrency=1)
    collector = Collector(stack.settings, tasks, options, on_progress=on_progress)
    collected = await collector.run()
    assert (collected.completed, collected.left, collected.whole) == (2, 4, False)
    rest = await collect_rollouts(stack.settings, tasks, _options(agent, tmp_path, resume=True))
    assert (rest.done_before, rest.completed, rest.whole) == (2, 4, True)


async def test_drain_before_anything(make_stack: MakeStack, tmp_path: Path) -> None:
    """A collection that is drained before it begins dispatches nothing."""
    stack = make_stack()
    calling = CallingAgent(stack.settings)
    collector = Collector(stack.settings, [{}] * 3, _options(stack.serve(calling), tmp_path))
    collector.drain()
    collected = await collector.run()
    assert (collected.completed, collected.left, calling.asked) == (0, 3, [])


async def test_pending_calls_are_waited_for(make_stack: MakeStack, tmp_path: Path) -> None:
    """A call that is still in flight when /run answers is in the attachment all the same."""
    stack = make_stack()
    stack.engine.delay_s = 0.3

    class Leaving(CallingAgent):
        async def run(self, request: Request, body: dict[str, Any]) -> Any:
            self.straggler = asyncio.ensure_future(super().run(request, body))
            while not stack.store.pending("0-0"):
                await asyncio.sleep(0.001)
            return {}

    agent = stack.serve(Leaving(stack.settings))
    collected = await collect_rollouts(stack.settings, [{"calls": 1}], _options(agent, tmp_path))
    [row] = read_rows(collected.output)
    assert len(row[ATTACHMENT_KEY]["calls"]) == 1
    assert "gaps" not in row[ATTACHMENT_KEY]


async def test_unsettled_calls_are_a_gap(make_stack: MakeStack, tmp_path: Path) -> None:
    """The wait for calls in flight is bounded; what is still out is a gap with its number."""
    stack = make_stack()
    writer = RecordWriter(stack.directory)

    class Idle(CallingAgent):
        async def run(self, request: Request, body: dict[str, Any]) -> Any:
            writer.begin("0-0", "b" * 32)
            return {}

    agent = stack.serve(Idle(stack.settings))
    collected = await collect_rollouts(
        stack.settings, [{}], _options(agent, tmp_path, settle_timeout_s=0.2)
    )
    writer.close(5.0)
    [row] = read_rows(collected.output)
    gaps = {one["code"]: one.get("detail") for one in row[ATTACHMENT_KEY]["gaps"]}
    assert gaps["model_call_capture_pending"] == "count=1"


async def test_a_client_without_the_prefix_is_loud(make_stack: MakeStack, tmp_path: Path) -> None:
    """An agent whose client lost the prefix made calls that nobody can attach: the row says so, and the call is counted at the server."""
    stack = make_stack()

    class Losing(CallingAgent):
        def base_url_for_run(self, base_url: str, body: Any) -> str:
            return base_url

    agent = stack.serve(Losing(stack.settings))
    collected = await collect_rollouts(stack.settings, [{"calls": 3}], _options(agent, tmp_path))
    [row] = read_rows(collected.output)
    assert row[ATTACHMENT_KEY]["gaps"] == [
        {"code": "model_call_capture_no_records"},
        {"code": "model_call_prefix_missing", "detail": "agent=3"},
    ]
    assert stack.engine.calls == 3


async def test_a_fault_of_ours_costs_one_rollout(
    make_stack: MakeStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody expected is logged and told for its own rollout; the others go on, and resume plays it again."""
    from otel_gym.rollouts import collect

    stack = make_stack()
    agent = stack.serve(CallingAgent(stack.settings))
    original = collect.rollout_record

    def faulty(dispatch: Any, *arguments: Any, **named: Any) -> RolloutRecord:
        if dispatch.rollout_id == "1-0":
            raise RuntimeError("a fault")
        return original(dispatch, *arguments, **named)

    monkeypatch.setattr(collect, "rollout_record", faulty)
    problems: list[str] = []
    collected = await collect_rollouts(
        stack.settings, [{}] * 3, _options(agent, tmp_path), on_problem=problems.append
    )
    assert (collected.completed, collected.left) == (2, 1)
    assert problems == ["rollout 1-0: could not be kept; see the log"]
    monkeypatch.undo()
    again = await collect_rollouts(stack.settings, [{}] * 3, _options(agent, tmp_path, resume=True))
    assert again.whole
    assert _ids(read_rows(again.output)) == ["0-0", "1-0", "2-0"]


async def test_agent_gets_the_rollouts_trace_context(make_stack: MakeStack, tmp_path: Path) -> None:
    """The request to /run carries a traceparent that is the rollout's own span."""
    stack = make_stack()
    seen: list[str] = []

    class Seeing(CallingAgent):
        async def run(self, request: Request, body: dict[str, Any]) -> Any:
            seen.append(request.headers["traceparent"])
            return {}

    agent = stack.serve(Seeing(stack.settings))
    await collect_rollouts(stack.settings, [{}], _options(agent, tmp_path))
    run = read_run(stack.directory)
    assert run is not None
    ids = (trace_id(run.run_id, "0-0"), root_span_id(run.run_id, "0-0"))
    assert seen == [f"00-{ids[0]}-{ids[1]}-01"]


async def test_observability_off(make_stack: MakeStack, tmp_path: Path) -> None:
    """Without observability results are collected, nothing is attached and nothing is written to a capture directory."""
    stack = make_stack()
    agent = stack.serve(CallingAgent({"policy": {"responses_api_models": {"m": {"port": 1}}}}))
    collected = await collect_rollouts(Settings(), [{"calls": 0}], _options(agent, tmp_path))
    [row] = read_rows(collected.output)
    assert ATTACHMENT_KEY not in row and row["reward"] == 0.5
    assert not list(stack.directory.glob("*.rollout.json"))


class Odd(CallingAgent):
    """Answers as the task says."""

    async def run(self, request: Request, body: dict[str, Any]) -> Any:
        match body["answer"]:
            case "text":
                return Response("<html>\x1b[31mno</html>", media_type="text/html")
            case "list":
                return JSONResponse([1])
            case "huge":
                return StreamingResponse(b"x" * 65536 for _ in range(64))
            case "refused":
                return JSONResponse({"detail": "too busy"}, status_code=503)
            case "slow":
                await asyncio.sleep(600)
            case "crash":
                raise RuntimeError("boom")
        return {"reward": 1}


async def test_every_bad_answer_is_one_clear_line(make_stack: MakeStack, tmp_path: Path) -> None:
    """An agent that answers something else than a result costs its own rollout one line and one failure row; the others go on."""
    stack = make_stack()
    agent = stack.serve(Odd(stack.settings))
    answers = ["text", "list", "huge", "refused", "slow", "crash", "good"]
    problems: list[str] = []
    options = _options(agent, tmp_path, max_response_bytes=1024 * 1024, timeout_s=4.0)
    collected = await collect_rollouts(
        stack.settings,
        [{"answer": one} for one in answers],
        options,
        on_problem=problems.append,
    )
    assert (collected.completed, collected.failed) == (1, 6)
    said = dict(one.removeprefix("rollout ").split(": ", 1) for one in problems)
    assert said == {
        "0-0": "the agent's answer is not JSON: <html> [31mno</html>",
        "1-0": "the agent's answer must be a JSON object, not a list",
        "2-0": "the agent's answer is larger than 1048576 bytes",
        "3-0": 'the agent answered 503: {"detail":"too busy"}',
        "4-0": "the agent did not answer in time",
        "5-0": 'the agent answered 500: {"error":{"code":"agent_error","message":"RuntimeError: boom"}}',
    }
    failures = read_rows(collected.failures)
    classes = {row["rollout_id"]: row["_ng_failure_class"] for row in failures}
    assert classes == {
        **{f"{task}-0": "agent_run_error" for task in (0, 1, 2, 3, 5)},
        "4-0": "agent_request_failed",
    }
    assert {row["rollout_id"]: row["error"]["code"] for row in failures} == {
        "0-0": "agent_response_not_json",
        "1-0": "agent_response_not_json",
        "2-0": "agent_response_too_large",
        "3-0": "agent_status",
        "4-0": "agent_timeout",
        "5-0": "agent_status",
    }


async def test_results_that_strict_readers_refuse(make_stack: MakeStack, tmp_path: Path) -> None:
    """Half an emoji, a number that is none and an integer of many digits in a result don't fail its rollout, and the row can be read by everybody."""
    stack = make_stack()
    text = '{"half": "\\ud83d", "nan": NaN, "long": 123456789012345678901234567890}'

    class Careless(CallingAgent):
        async def run(self, request: Request, body: dict[str, Any]) -> Any:
            if body["raw"]:
                return Response(text, media_type="application/json")
            return {"half": "\ud83d", "nan": float("nan"), "long": 10**29}

    agent = stack.serve(Careless(stack.settings))
    tasks = [{"raw": True}, {"raw": False}]
    collected = await collect_rollouts(stack.settings, tasks, _options(agent, tmp_path))
    assert collected.whole
    for row in read_rows(collected.output):
        assert (row["half"], row["nan"]) == ("\ufffd", None)
        assert row["long"] > 10**28
    again = await collect_rollouts(stack.settings, tasks, _options(agent, tmp_path, resume=True))
    assert again.done_before == 2


async def test_results_that_say_they_are_none(make_stack: MakeStack, tmp_path: Path) -> None:
    """NeMo Gym's marks are understood: a failure class goes to the failures file, a terminal one is not tried again, a killed one is not kept."""
    stack = make_stack()

    class Marking(CallingAgent):
        async def run(self, request: Request, body: dict[str, Any]) -> Any:
            return {"reward": 0.0, **body["result"]}

    agent = stack.serve(Marking(stack.settings))
    tasks: list[dict[str, Any]] = [
        {"result": {"_ng_failure_class": "timeout_exceeded", "error": "took too long"}},
        {"result": {"_ng_failure_class": "timeout_exceeded", "_ng_failure_terminal": True}},
        {"result": {"_ng_no_persist": True}},
        {"result": {}},
    ]
    problems: list[str] = []
    options = _options(agent, tmp_path, concurrency=1)
    collected = await collect_rollouts(stack.settings, tasks, options, on_problem=problems.append)
    assert (collected.completed, collected.failed, collected.left) == (1, 2, 1)
    assert sorted(problems) == [
        "rollout 0-0: took too long",
        "rollout 1-0: timeout_exceeded",
        "rollout 2-0: the agent was killed in it; --resume plays it again",
    ]
    failures = read_rows(collected.failures)
    assert [row["rollout_id"] for row in failures] == ["0-0", "1-0"]
    assert failures[0]["error"] == "took too long" and failures[0]["reward"] == 0.0
    record = read_rollout_record(stack.directory, "0-0")
    assert record is not None
    assert (record.error_type, record.reward) == ("timeout_exceeded", None)
    again = _options(agent, tmp_path, resume=True)
    await collect_rollouts(stack.settings, tasks, again, on_problem=problems.append)
    assert [row["rollout_id"] for row in read_rows(collected.failures)] == ["0-0", "1-0", "0-0-a1"]


async def test_an_agent_that_dies_is_no_attempt_for_the_rest(
    make_stack: MakeStack, tmp_path: Path
) -> None:
    """Rollouts that an agent which went away never got are told and noted, and come again under the same id."""
    stack = make_stack()
    from tests.engines.serving import Served

    options: CollectOptions
    with Served(CallingAgent(stack.settings)) as served:
        options = _options(served.url, tmp_path, concurrency=1)

        def on_progress(moment: CollectProgress) -> None:
            if moment.completed == 1 and moment.in_flight == 0:
                served.stop()

        problems: list[str] = []
        collected: Collected = await collect_rollouts(
            stack.settings,
            [{}, {}],
            options,
            on_progress=on_progress,
            on_problem=problems.append,
        )
    assert (collected.completed, collected.failed) == (1, 1)
    assert problems[0].startswith(f"rollout 1-0: the agent at {served.url} cannot be reached")
    [failed] = read_rows(collected.failures)
    assert failed["error"]["code"] == "agent_unreachable" and ATTACHMENT_KEY not in failed
    agent = stack.serve(CallingAgent(stack.settings))
    rest = await collect_rollouts(stack.settings, [{}, {}], _options(agent, tmp_path, resume=True))
    assert rest.whole
    assert _ids(read_rows(rest.output)) == ["0-0", "1-0"]


async def test_an_agent_that_is_not_there(make_stack: MakeStack, tmp_path: Path) -> None:
    """An agent that nothing listens for stops the collection before anything is dispatched or cleared, with one clear line."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(UsageProblem, match=r"cannot be reached .*start it, or check --agent"):
            await collect_rollouts(Settings(), [{}], _options(url, tmp_path))
    with pytest.raises(UsageProblem, match="must be a URL such as"):
        await collect_rollouts(Settings(), [{}], _options("localhost:80", tmp_path))


async def test_results_are_not_overwritten_by_accident(
    make_stack: MakeStack, tmp_path: Path
) -> None:
    """An output that exists is refused without resume or overwrite; overwrite starts anew, and its captures with it."""
    stack = make_stack()
    agent = stack.serve(CallingAgent(stack.settings))
    await collect_rollouts(stack.settings, [{}], _options(agent, tmp_path))
    with pytest.raises(UsageProblem, match="exists; go on with --resume"):
        await collect_rollouts(stack.settings, [{}], _options(agent, tmp_path))
    collected = await collect_rollouts(
        stack.settings, [{}], _options(agent, tmp_path, overwrite=True)
    )
    [row] = read_rows(collected.output)
    assert len(row[ATTACHMENT_KEY]["calls"]) == 2


async def test_an_output_that_fails_stops_the_collection(
    make_stack: MakeStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a result can't be written nothing more is dispatched, and what was lost is counted as left."""
    from otel_gym.errors import StoreUnavailable
    from otel_gym.rollouts.journal import Journal

    async def full(self: Journal, row: Any) -> None:
        raise StoreUnavailable(f"{self.path}: cannot be written: No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    stack = make_stack()
    agent = stack.serve(CallingAgent(stack.settings))
    problems: list[str] = []
    collected = await collect_rollouts(
        stack.settings,
        [{}] * 5,
        _options(agent, tmp_path, concurrency=1),
        on_problem=problems.append,
    )
    assert (collected.completed, collected.left) == (0, 5)
    assert len(problems) == 1 and "No space left on device; no more are dispatched" in problems[0]
