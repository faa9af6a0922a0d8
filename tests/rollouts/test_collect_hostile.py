"""Collections whose surroundings work against them: changed input, files that are something else, few files, agents that stall, two collectors at once."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.requests import Request

from otel_gym.errors import UsageProblem
from otel_gym.rollouts import CollectOptions, collect_rollouts
from otel_gym.rollouts.journal import Journal
from otel_gym.rollouts.state import read_state
from otel_gym.settings import settings_from
from tests.rollouts.agents import CallingAgent
from tests.rollouts.conftest import MakeStack, read_rows, write_rows

OFF = settings_from({"observability_enabled": False})
MAIN = [sys.executable, "-c", "from otel_gym.cli.main import main; main()", "collect"]


class Gathering(CallingAgent):
    """Answers nobody until `wanted` rollouts are in flight at once."""

    wanted = 1

    async def startup(self) -> None:
        await super().startup()
        self.is_full = asyncio.Event()
        self.waiting = 0

    async def run(self, request: Request, body: dict[str, Any]) -> Any:
        self.waiting += 1
        if self.waiting >= self.wanted:
            self.is_full.set()
        await self.is_full.wait()
        return {"reward": 1.0}


def _options(url: str, tmp_path: Path, **more: Any) -> CollectOptions:
    return CollectOptions(agent_url=url, output=tmp_path / "out.jsonl", **more)


async def test_input_that_changed_between_runs(make_stack: MakeStack, tmp_path: Path) -> None:
    """A task that is another one than when it was played is named, keeps its result and leaves the collection unfinished; new, equal and reordered keys are not."""
    agent = make_stack().serve(Gathering(OFF))
    rows: list[dict[str, Any]] = [{"q": 0, "r": 0}, {"q": 1}, {"q": 2}]
    first = await collect_rollouts(OFF, rows, _options(agent, tmp_path))
    assert first.whole
    before = (tmp_path / "out.jsonl").read_bytes()
    problems: list[str] = []
    changed: list[dict[str, Any]] = [{"r": 0, "q": 0}, {"q": "another"}, {"q": 2}, {"q": 3}]
    options = _options(agent, tmp_path, resume=True)
    second = await collect_rollouts(OFF, changed, options, on_problem=problems.append)
    assert (second.done_before, second.completed, second.input_problems) == (3, 1, 1)
    assert not second.whole
    assert [one.partition(":")[0] for one in problems] == ["rollout 1-0"]
    assert "is not the one that was played" in problems[0]
    assert (tmp_path / "out.jsonl").read_bytes().startswith(before)


async def test_fewer_tasks_than_before(make_stack: MakeStack, tmp_path: Path) -> None:
    """`limit` with `resume` counts the tasks that it takes: those done are done, and lifting the limit plays the rest once."""
    agent = make_stack().serve(Gathering(OFF))
    rows = [{"q": number} for number in range(6)]
    for limit, done, played in ((4, 0, 4), (2, 2, 0), (None, 4, 2), (None, 6, 0)):
        options = _options(agent, tmp_path, resume=True, limit=limit)
        collected = await collect_rollouts(OFF, rows, options)
        assert (collected.done_before, collected.completed) == (done, played)
        assert collected.whole
    rows_out = read_rows(tmp_path / "out.jsonl")
    assert sorted(row["_ng_task_index"] for row in rows_out) == list(range(6))


@pytest.mark.parametrize("name", ["out.jsonl", "out_failures.jsonl"])
@pytest.mark.parametrize("more", [{"overwrite": True}, {"resume": True}], ids=str)
async def test_output_that_is_the_input(tmp_path: Path, name: str, more: dict[str, bool]) -> None:
    """An input that would be written over, as results or as failures, is refused and stays as it is."""
    tasks = write_rows(tmp_path / name, [{"q": 1}])
    before = tasks.read_bytes()
    with pytest.raises(UsageProblem, match="is the input; name another output"):
        await collect_rollouts(OFF, tasks, _options("http://127.0.0.1:9", tmp_path, **more))
    assert tasks.read_bytes() == before


async def test_a_file_that_is_not_ours_stays_as_it_is(tmp_path: Path) -> None:
    """A file that exists and is refused is not touched, not even its missing last newline mended."""
    output = tmp_path / "out.jsonl"
    output.write_bytes(b"notes")
    with pytest.raises(UsageProblem, match="exists; go on with --resume"):
        await collect_rollouts(OFF, [{}], _options("http://127.0.0.1:9", tmp_path))
    assert output.read_bytes() == b"notes"


async def test_an_absent_agent_costs_no_earlier_result(tmp_path: Path) -> None:
    """Beginning anew without an agent being there leaves the earlier results alone."""
    output = write_rows(tmp_path / "out.jsonl", [{"_ng_task_index": 0, "_ng_rollout_index": 0}])
    before = output.read_bytes()
    with pytest.raises(UsageProblem, match="cannot be reached"):
        await collect_rollouts(OFF, [{}], _options("http://127.0.0.1:9", tmp_path, overwrite=True))
    assert output.read_bytes() == before


async def test_state_is_read_when_nobody_else_writes(
    make_stack: MakeStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is still to be done is found out when no other collection can add to it, so two resumes one after another play nothing twice."""
    agent = make_stack().serve(Gathering(OFF))
    seen: list[bool] = []

    def reading(output: Path, failures: Path) -> Any:
        with pytest.raises(UsageProblem, match="another collection"):
            Journal(output)
        seen.append(True)
        return read_state(output, failures)

    monkeypatch.setattr("otel_gym.rollouts.collect.read_state", reading)
    await collect_rollouts(OFF, [{}], _options(agent, tmp_path, resume=True))
    assert seen


def test_more_rollouts_at_once_than_files_by_default(make_stack: MakeStack, tmp_path: Path) -> None:
    """The command raises its limit of open files: 400 rollouts are in flight at once where the shell allows 256 files and more on demand."""
    asked = Gathering(OFF)
    asked.wanted = 400
    agent = make_stack().serve(asked)
    tasks = write_rows(tmp_path / "tasks.jsonl", [{}] * 400)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("the hard limit of open files is too low to raise the soft one")
    command = [*MAIN, "--agent", agent, "--input", str(tasks), "--concurrency", "400", "--json"]
    command += ["--output", str(tmp_path / "out.jsonl")]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard) if hard > 0 else 4096, hard))
    limited = ["sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh", *command]
    try:
        done = subprocess.run(limited, capture_output=True, timeout=240, check=False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert done.returncode == 0, done.stderr.decode()
    assert orjson.loads(done.stdout)["completed"] == 400


async def test_fewer_at_once_than_asked_where_files_are_few(
    make_stack: MakeStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the limit of open files can't be raised, fewer rollouts are in flight, which is said once, and none fails."""
    asked = Gathering(OFF)
    agent = make_stack().serve(asked)
    monkeypatch.setattr("otel_gym.rollouts.collect.file_limit", lambda: 130)
    problems: list[str] = []
    options = _options(agent, tmp_path, concurrency=50)
    most = 0

    def watching(moment: Any) -> None:
        nonlocal most
        most = max(most, moment.in_flight)

    collected = await collect_rollouts(
        OFF, [{}] * 20, options, on_problem=problems.append, on_progress=watching
    )
    assert collected.completed == 20
    assert most == 2
    assert problems == [
        "concurrency 50: only 2 rollouts at once, since this process may open 130 files (ulimit -n)"
    ]


class Stalling:
    """An agent on a bare socket: answers a rollout's begin and then nothing, or drips, or hangs up, by the task's `how`."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._held: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def end(self) -> None:
        self._listening.close()
        for one in self._held:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        self._held.append(connection)
        with suppress(OSError):
            request = b""
            while not request.endswith(b"}"):
                part = connection.recv(65536)
                if not part:
                    return
                request += part
            how = orjson.loads(request.partition(b"\r\n\r\n")[2])["how"]
            if how == "silent":
                pass
            elif how == "headers":
                connection.sendall(head + b"content-length: 20\r\n\r\n")
            elif how == "half":
                connection.sendall(head + b'content-length: 20\r\n\r\n{"reward"')
            elif how == "cut":
                connection.sendall(head + b'content-length: 20\r\n\r\n{"reward"')
                connection.close()
            elif how == "hangup":
                connection.close()
            elif how == "noise":
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                connection.close()
            elif how == "empty":
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            elif how == "bytes":
                connection.sendall(head + b"content-length: 4\r\n\r\n\xff\xfe\x00{")
            else:
                connection.sendall(head + b'content-length: 12\r\n\r\n{"reward":1}')


async def test_agents_that_stall_or_break_off(tmp_path: Path) -> None:
    """Silence before, within and after the headers, an answer cut short, no HTTP at all: each is its own rollout's failure with its own code, and the rest goes on."""
    expected = {
        "silent": "agent_timeout",
        "headers": "agent_timeout",
        "half": "agent_timeout",
        "cut": "agent_connection_lost",
        "hangup": "agent_connection_lost",
        "noise": "agent_connection_lost",
        "empty": "agent_response_not_json",
        "bytes": "agent_response_not_json",
    }
    stalling = Stalling()
    rows = [{"how": how} for how in (*expected, "well")]
    problems: list[str] = []
    options = _options(stalling.url, tmp_path, timeout_s=3.0)
    collected = await collect_rollouts(OFF, rows, options, on_problem=problems.append)
    stalling.end()
    assert (collected.completed, collected.failed) == (1, len(expected))
    assert len(problems) == len(expected)
    assert all(one.isprintable() for one in problems)
    failures = read_rows(collected.failures)
    found = {row["_ng_task_index"]: row["error"]["code"] for row in failures}
    assert [found[number] for number in range(len(expected))] == list(expected.values())


def test_two_interrupts_stop_at_once(tmp_path: Path) -> None:
    """The second interrupt ends a collection whose agent never answers; nothing is written of what was in flight, and --resume plays all of it."""
    stalling = Stalling()
    tasks = write_rows(tmp_path / "tasks.jsonl", [{"how": "silent"}] * 5)
    output = tmp_path / "out.jsonl"
    command = [*MAIN, "--agent", stalling.url, "--input", str(tasks), "--output", str(output)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "in flight" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        while "once more to stop at once" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(60) == 130
    stalling.end()
    assert "go on with --resume" in rest and "Traceback" not in rest
    assert output.read_bytes() == b""
    assert not (tmp_path / "out_failures.jsonl").exists()


async def test_input_that_is_no_text(make_stack: MakeStack, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, a byte order mark, a row of megabytes and a duplicate id cost their own row one line; the good ones are played."""
    agent = make_stack().serve(Gathering(OFF))
    rows = [
        b"\xef\xbb\xbf" + b'{"q": "mark"}',
        b'{"q": "\xff"}',
        '{"q": "16"}'.encode("utf-16"),
        {"q": "x" * 3_000_000},
        {"q": 4, "_ng_rollout_id": "same"},
        {"q": 5, "_ng_rollout_id": "same"},
        b"\x00",
        {"q": 7},
    ]
    tasks = write_rows(tmp_path / "tasks.jsonl", list(rows))
    problems: list[str] = []
    collected = await collect_rollouts(
        OFF, tasks, _options(agent, tmp_path), on_problem=problems.append
    )
    assert collected.failed == 0
    assert collected.planned == collected.completed >= 3
    assert collected.input_problems == len(problems) >= 4
    assert all(len(one) < 400 for one in problems), [len(one) for one in problems]
    assert sum("is already that of another row" in one for one in problems) == 1
