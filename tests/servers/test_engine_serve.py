"""`otel-gym serve` as a process: start-up lines, wrong input, an orderly end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from otel_gym.cli.main import run
from otel_gym.servers.listening import Listener
from tests.engines.recording import RecordingEngine, json_script, stream_script
from tests.engines.wire import WireClient, call
from tests.servers.test_model import lines

COMMAND = "from otel_gym.cli.main import main; main()"
PATH = "/ng-rollout/7-2/v1/chat/completions"
FIRST = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"He"}}]}\n\n'
REST = [
    b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
]


class Serve:
    """A running `otel-gym serve`."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if not k.startswith("OTEL_")},
        )
        assert self.process.stdout is not None
        self.lines = [self.process.stdout.readline().rstrip("\n") for _ in range(5)]
        self.said = {line.split()[0]: line.split(None, 1)[1] for line in self.lines if line}
        self.url = self.said.get("listening", "").split(" ")[0]

    def stop(self) -> tuple[int, str]:
        """SIGTERM; the exit code and what stood on stderr."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@contextmanager
def serving(*arguments: str) -> Iterator[Serve]:
    server = Serve(*arguments)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


@pytest.fixture
def engine() -> Iterator[RecordingEngine]:
    with RecordingEngine() as recording:
        yield recording


def test_start_up_lines_and_an_orderly_end(engine: RecordingEngine, tmp_path: Path) -> None:
    """One line each for address, engine, capture, sampling and export; a call is recorded; SIGTERM ends with exit code 0 and nothing on stderr."""
    engine.default = json_script({"id": "x", "object": "response", "status": "completed"})
    directory = tmp_path / "captures"
    with serving("--engine", engine.url + "/v1", "--capture-dir", str(directory), "--run-id", "r1", "--name", "policy", "--sampling", "temperature=1.0", "--sampling", "top_k=-1") as server:  # fmt: skip
        assert server.said["engine"] == engine.url
        assert server.said["capture"] == f"{directory} (run r1)"
        assert server.said["sampling"] == "pins temperature=1.0, top_k=-1"
        assert server.said["export"].startswith("off")
        assert call(server.url, "POST", "/ng-rollout/7-2/v1/responses", b"{}").complete
        assert (
            orjson.loads(call(server.url, "GET", "/otel-gym/sampling").body)["server"] == "policy"
        )
        assert server.stop() == (0, "")
    (line,) = lines(directory)
    assert line["model_ref"]["name"] == "policy"
    assert line["sampling"]["effective"] == {"temperature": 1.0, "top_k": -1}
    assert orjson.loads((directory / "run.json").read_bytes())["run_id"] == "r1"


def test_a_websocket_upgrade_is_426_on_the_wire(engine: RecordingEngine) -> None:
    """uvicorn hands an upgrade on as a plain request, and the server answers 426 without asking the engine."""
    upgrade = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13"), ("sec-websocket-key", "eA==")]  # fmt: skip
    with serving("--engine", engine.url) as server:
        assert server.said["capture"].startswith("off")
        assert call(server.url, "GET", "/ng-rollout/7-2/v1/responses", None, upgrade).status == 426
        assert server.stop() == (0, "")
    assert engine.received == []


def test_a_call_in_flight_may_end(engine: RecordingEngine, tmp_path: Path) -> None:
    """A call that ends within the shutdown timeout after SIGTERM is answered and recorded as complete."""
    script = stream_script(FIRST, *REST)
    script.hold_after = 1
    engine.default = script
    with serving("--engine", engine.url, "--capture-dir", str(tmp_path)) as server:
        client = WireClient(server.url).start("POST", PATH, b'{"stream":true}')
        client.read(chunks=1)
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises((ConnectionRefusedError, ConnectionResetError)):
            # The listening socket closes first; until then connections are still taken, and one on its way in that moment is reset.
            while True:
                socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))).close()
        script.release.set()
        assert client.read().complete
        client.close()
        _, errors = server.process.communicate(timeout=60)
        assert server.process.returncode == 0, errors
    (line,) = lines(tmp_path)
    assert (line["error_category"], line["stream"]["terminal"]) == (None, "complete")


def test_a_call_that_does_not_end_is_cut_and_recorded(
    engine: RecordingEngine, tmp_path: Path
) -> None:
    """A call that outlives the shutdown timeout is broken off, its engine call cancelled, and its record says cancelled."""
    script = stream_script(FIRST, *REST)
    script.hold_after = 1
    engine.default = script
    config = tmp_path / "config.yaml"
    config.write_text(
        f"observability_enabled: true\nmodel_call_capture_dir: {tmp_path}\n"
        "otel_gym: {shutdown_timeout: 0.3}\n"
        f"policy: {{responses_api_models: {{vllm_model: {{base_url: {engine.url}}}}}}}\n"
    )
    with serving("--config", str(config)) as server:
        client = WireClient(server.url).start("POST", PATH, b'{"stream":true}')
        client.read(chunks=1)
        server.process.send_signal(signal.SIGTERM)
        assert not client.read().complete
        client.close()
        server.process.communicate(timeout=60)
        assert server.process.returncode == 0
    (line,) = lines(tmp_path)
    assert line["error_category"] == "cancelled"
    assert line["response_raw"] == FIRST.decode()
    assert engine.received[0].disconnected.wait(20)


def test_an_absent_engine_is_only_a_warning(tmp_path: Path) -> None:
    """The server starts before its engine: one warning, then 502 in the caller's dialect until the engine is there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with serving("--engine", url, "--capture-dir", str(tmp_path)) as server:
        assert call(server.url, "POST", PATH, b"{}").status == 502
        code, errors = server.stop()
    assert code == 0
    assert errors.splitlines()[0].startswith("warning   the engine cannot be reached yet")
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no engine; give --engine URL"),
        (["--engine", "localhost:8000"], "must be a URL"),
        (["--engine", "http://h", "--sampling", "temperature"], "must be NAME=VALUE"),
        (["--engine", "http://h", "--sampling", "temperature=-1"], "temperature: -1: must be a number from 0 to 2"),
        (["--engine", "http://h", "--sampling", "temprature=1"], "did you mean 'temperature'"),
        (["--engine", "http://h", "--otlp-endpoint", "host:4318"], "must be a URL"),
        (["--engine", "http://h", "--config", "missing.yaml"], "missing.yaml"),
        (["--engine", "http://h", "--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--engine", "http://h", "--port", "99999"], "99999"),
    ],
)  # fmt: skip
def test_wrong_input(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """Wrong usage is one clear line on stderr and exit code 2."""
    assert run(["serve", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err and captured.err.count("\n") == 1


def test_small_chunks_do_not_wait_for_each_other() -> None:
    """Connections that the server takes have Nagle's algorithm off: a chunk goes out when it is written."""
    listener = Listener("127.0.0.1", 0)
    with listener.socket, socket.create_connection(("127.0.0.1", listener.port)):
        accepted, _ = listener.socket.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_a_lost_engine_is_one_line_in_the_log(engine: RecordingEngine) -> None:
    """Answers that the engine broke off are told in one line, without a traceback, however many they are."""
    script = stream_script(FIRST)
    script.break_off = True
    engine.default = script
    with serving("--engine", engine.url) as server:
        for _ in range(3):
            answer = call(server.url, "POST", PATH, b"{}")
            assert (answer.chunks, answer.complete) == ([FIRST], False)
        code, errors = server.stop()
    assert code == 0
    assert errors.count("\n") == 1 and "broke off its answer" in errors
