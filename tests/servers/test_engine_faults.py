"""What a client sees and what the record says when the engine or the client goes away."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym.counters import counted
from otel_gym.servers.model import build_model_server
from otel_gym.settings import ModelServerSettings
from tests.engines.recording import RecordingEngine, json_script, stream_script
from tests.engines.serving import Served
from tests.engines.wire import WireClient, call
from tests.servers.test_model import lines, settings_for

REPOSITORY = Path(__file__).resolve().parents[2]
BODY = b'{"model":"m","stream":true}'
FIRST = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"He"}}]}\n\n'
LAST = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


@contextmanager
def server_for(engine_url: str, directory: Path) -> Iterator[str]:
    app = build_model_server(settings_for(directory), ModelServerSettings(base_url=engine_url))
    with Served(app) as served:
        yield served.url


@pytest.fixture
def engine() -> Iterator[RecordingEngine]:
    with RecordingEngine() as recording:
        yield recording


def only_line(directory: Path) -> dict[str, Any]:
    found = lines(directory)
    assert len(found) == 1
    return found[0]


def test_engine_killed_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    """kill -9 of the engine: the client keeps what it has, its stream is broken off and never ends well; the record is no complete call."""
    engine = subprocess.Popen(
        [sys.executable, "-m", "tests.engines.recording_main", FIRST.decode(), FIRST.decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    assert engine.stdin is not None and engine.stdout is not None
    before = counted("engine.lost")
    try:
        with server_for(engine.stdout.readline().decode().strip(), tmp_path) as url:
            client = WireClient(url).start("POST", "/ng-rollout/7-2/v1/chat/completions", BODY)
            assert client.read(chunks=2).chunks == [FIRST, FIRST]
            engine.kill()
            answer = client.read()
            client.close()
    finally:
        engine.kill()
        engine.wait()
        engine.stdin.close()
        engine.stdout.close()
    assert (answer.status, answer.chunks, answer.complete) == (200, [FIRST, FIRST], False)
    line = only_line(tmp_path)
    assert (line["status_code"], line["error_category"]) == (200, "connection")
    assert line["response_raw"] == (FIRST + FIRST).decode()
    assert line["stream"]["terminal"] != "complete"
    assert line["local_response_reason"] == "engine_lost"
    assert counted("engine.lost") == before + 1


def test_engine_breaks_off_a_body_of_known_length(tmp_path: Path) -> None:
    """A JSON answer that stops short is broken off for the client too, at the same byte."""
    with (
        one_answer(
            b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{"a"'
        ) as engine_url,
        server_for(engine_url, tmp_path) as url,
    ):
        answer = call(url, "POST", "/ng-rollout/7-2/v1/responses", b"{}")
    assert (answer.status, answer.body, answer.complete) == (200, b'{"a"', False)
    assert only_line(tmp_path)["error_category"] == "connection"


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/chat/completions", "openai"),
        ("/v1/responses", "openai"),
        ("/v1/completions", "openai"),
        ("/v1/messages", "anthropic"),
    ],
)
def test_engine_unreachable(tmp_path: Path, path: str, dialect: str) -> None:
    """Nobody listens: 502, an error in the caller's dialect, a record of it, a counter."""
    before = counted("engine.unreachable")
    with server_for(f"http://127.0.0.1:{free_port()}", tmp_path) as url:
        answer = call(url, "POST", f"/ng-rollout/7-2{path}", BODY)
    error = orjson.loads(answer.body)
    assert (answer.status, answer.complete) == (502, True)
    if dialect == "anthropic":
        assert (error["type"], error["error"]["type"]) == ("error", "api_error")
    else:
        assert (error["error"]["type"], error["error"]["code"]) == (
            "server_error",
            "engine_unreachable",
        )
    assert "refused" in error["error"]["message"].lower()
    line = only_line(tmp_path)
    assert (line["status_code"], line["error_category"]) == (502, "upstream_error")
    assert (line["response_source"], line["local_response_reason"]) == (
        "local",
        "engine_unreachable",
    )
    assert line["request"] == orjson.loads(BODY)
    assert counted("engine.unreachable") == before + 1


def test_engine_hangs_up_before_an_answer(tmp_path: Path) -> None:
    """A connection that is taken and closed without a word is a 502 as well."""
    with one_answer(b"") as engine_url, server_for(engine_url, tmp_path) as url:
        answer = call(url, "POST", "/ng-rollout/7-2/v1/messages", BODY)
    assert answer.status == 502
    assert only_line(tmp_path)["status_code"] == 502


def test_client_gone_in_the_middle_of_a_stream(engine: RecordingEngine, tmp_path: Path) -> None:
    """The client hangs up mid-stream: the engine call is cancelled at once, and the record holds what had come, not as complete."""
    script = stream_script(FIRST, LAST, DONE)
    script.hold_after = 1
    engine.default = script
    before = counted("engine.cancelled")
    with server_for(engine.url, tmp_path) as url:
        client = WireClient(url).start("POST", "/ng-rollout/7-2/v1/chat/completions", BODY)
        client.read(chunks=1)
        client.close()
        assert engine.received[0].disconnected.wait(20)
    line = only_line(tmp_path)
    assert line["error_category"] == "cancelled"
    assert line["response_raw"] == FIRST.decode()
    assert line["stream"]["terminal"] != "complete"
    assert counted("engine.cancelled") == before + 1


def test_client_gone_before_an_answer(engine: RecordingEngine, tmp_path: Path) -> None:
    """The client of a long generation hangs up before the first byte: the engine call is cancelled, the call has its record."""
    script = json_script({"id": "x"})
    script.hold_before_answer = True
    engine.default = script
    with server_for(engine.url, tmp_path) as url:
        client = WireClient(url).start("POST", "/ng-rollout/7-2/v1/responses", b"{}")
        engine.arrived.wait(20)
        client.close()
        assert engine.received[0].disconnected.wait(20)
    line = only_line(tmp_path)
    assert (line["status_code"], line["error_category"]) == (None, "cancelled")


def test_client_that_leaves_after_the_terminal_event(
    engine: RecordingEngine, tmp_path: Path
) -> None:
    """A client that closes when it has read the terminal event, the engine still open, made a complete call."""
    script = stream_script(FIRST, LAST, DONE)
    script.hold_after = 3
    engine.default = script
    with server_for(engine.url, tmp_path) as url:
        client = WireClient(url).start("POST", "/ng-rollout/7-2/v1/chat/completions", BODY)
        assert client.read(chunks=3).body == FIRST + LAST + DONE
        client.close()
        assert engine.received[0].disconnected.wait(20)
    line = only_line(tmp_path)
    assert (line["error_category"], line["stream"]["terminal"]) == (None, "complete")
    assert line["response"]["choices"][0]["finish_reason"] == "stop"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def one_answer(answer: bytes) -> Iterator[str]:
    """A server that takes one request, sends these bytes and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()
