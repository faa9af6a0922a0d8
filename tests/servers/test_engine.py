"""The engine forwarder passes bytes through as they came, both ways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_gym.servers.engine import EngineForwarder
from otel_gym.settings import ModelServerSettings
from tests.engines.recording import JSON, RecordingEngine, Script, stream_script
from tests.engines.serving import Served
from tests.engines.wire import call

BODY = b'{"model":"m",  "messages":[{"role":"user","content":"h\\u00e9"}],"temperature":1.50}'


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[RecordingEngine, str]]:
    """A recording engine and the URL of a forwarder in front of it."""
    with RecordingEngine() as recording:
        settings = ModelServerSettings(base_url=recording.url + "/v1")
        with Served(EngineForwarder(settings)) as served:
            yield recording, served.url


@pytest.fixture
def engine(running: tuple[RecordingEngine, str]) -> RecordingEngine:
    """The engine, with nothing received and no script left from the test before."""
    running[0].reset()
    return running[0]


@pytest.fixture
def forwarder(running: tuple[RecordingEngine, str]) -> str:
    return running[1]


def test_request_is_byte_identical(engine: RecordingEngine, forwarder: str) -> None:
    """Method, target with its own escapes and query, body and end-to-end fields reach the engine as sent; none is invented."""
    target = "/v1/chat/completions?beta=true&q=%2f%7e&x=a+b"
    fields = [("Authorization", "Bearer abc"), ("x-thing", "1"), ("x-thing", "2")]
    call(forwarder, "POST", target, BODY, fields)
    call(engine.url, "POST", target, BODY, fields)
    through, direct = engine.received
    assert (through.method, through.target, through.body) == ("POST", target.encode(), BODY)
    ignored = b"host"
    assert sorted(h for h in through.headers if h[0] != ignored) == sorted(
        h for h in direct.headers if h[0] != ignored
    )
    assert through.header("host") == engine.url.removeprefix("http://")


def test_escapes_of_the_path_survive(engine: RecordingEngine, forwarder: str) -> None:
    """A percent-escaped path is not normalised on the way."""
    call(forwarder, "GET", "/v1/models/org%2Fname%20x/%e4?a=%41")
    assert engine.received[0].target == b"/v1/models/org%2Fname%20x/%e4?a=%41"


def test_json_answer_is_the_engines_own(engine: RecordingEngine, forwarder: str) -> None:
    """Status, all fields and the body of a JSON answer equal the engine's, Content-Length included."""
    engine.default = Script(
        [b'{"a": 1,', b' "b": 2}'],
        status=418,
        headers=[
            *JSON,
            (b"date", b"Mon, 01 Jan 2024 00:00:00 GMT"),
            (b"server", b"llama.cpp"),
            (b"set-cookie", b"a=1"),
            (b"set-cookie", b"b=2"),
        ],
        content_length=True,
    )
    through = call(forwarder, "POST", "/v1/responses", b"{}")
    direct = call(engine.url, "POST", "/v1/responses", b"{}")
    assert (through.status, through.headers, through.body) == (
        direct.status,
        direct.headers,
        direct.body,
    )
    assert through.complete


def test_stream_keeps_its_chunk_boundaries(engine: RecordingEngine, forwarder: str) -> None:
    """A stream's chunks come out as the engine cut them, in order, to a proper end."""
    parts = [b'data: {"n":%d}\n\n' % n for n in range(50)] + [b"data: [DONE]", b"\n\n"]
    engine.default = stream_script(*parts)
    through = call(forwarder, "POST", "/v1/chat/completions", b'{"stream":true}')
    direct = call(engine.url, "POST", "/v1/chat/completions", b'{"stream":true}')
    assert through.chunks == direct.chunks == parts
    assert (through.headers, through.complete) == (direct.headers, True)
