"""The engine forwarder passes bytes through as they came, both ways."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from otel_gym.errors import SettingsError
from otel_gym.servers.engine import EngineForwarder
from otel_gym.servers.headers import with_key
from otel_gym.servers.model import build_model_server
from otel_gym.settings import ModelServerSettings
from tests.engines.recording import JSON, RecordingEngine, Script, stream_script
from tests.engines.serving import Served
from tests.engines.wire import WireClient, call
from tests.servers.test_model import lines, settings_for

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


def test_hop_by_hop_fields_stay_on_their_hop(engine: RecordingEngine, forwarder: str) -> None:
    """RFC 9110 7.6.1: connection fields, and those that Connection names, pass in neither direction; nothing is invented."""
    engine.default = Script(
        [b"{}"],
        headers=[*JSON, (b"connection", b"x-hop"), (b"x-hop", b"1"), (b"x-end", b"2")],
        content_length=True,
    )
    fields = [
        ("connection", "keep-alive, X-Private"),
        ("x-private", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("proxy-authorization", "Basic x"),
        ("expect", "100-continue"),
        ("x-kept", "1"),
    ]
    answer = call(forwarder, "POST", "/v1/responses", b"{}", fields)
    assert {name for name, _ in engine.received[0].headers} == {
        b"host",
        b"content-length",
        b"x-kept",
    }
    assert {name for name, _ in answer.headers} == {b"content-type", b"content-length", b"x-end"}


def test_encodings_are_the_callers_business(engine: RecordingEngine, forwarder: str) -> None:
    """Accept-Encoding goes on as sent, and a compressed answer comes back as the engine packed it."""
    packed = gzip.compress(b'{"id": "x"}')
    engine.default = Script(
        [packed], headers=[*JSON, (b"content-encoding", b"gzip")], content_length=True
    )
    answer = call(
        forwarder, "POST", "/v1/responses", b"{}", [("accept-encoding", "br, zstd;q=0.5")]
    )
    assert engine.received[0].header("accept-encoding") == "br, zstd;q=0.5"
    assert (answer.body, dict(answer.headers)[b"content-encoding"]) == (packed, b"gzip")


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS", "PUT", "PATCH"])
def test_every_method_is_forwarded(engine: RecordingEngine, forwarder: str, method: str) -> None:
    """Any method reaches the engine; a HEAD keeps the length of the body that it does not get."""
    engine.default = Script([b'{"a":1}'], headers=JSON, content_length=True)
    body = b"x" if method in ("PUT", "PATCH") else None
    through = call(forwarder, method, "/api/hello", body)
    direct = call(engine.url, method, "/api/hello", body)
    assert (through.status, through.headers, through.body) == (
        direct.status,
        direct.headers,
        direct.body,
    )
    assert [r.method for r in engine.received] == [method, method]
    assert engine.received[0].body == (body or b"")


@pytest.mark.parametrize("chunked", [False, True])
def test_uploads_arrive_whole(engine: RecordingEngine, forwarder: str, chunked: bool) -> None:
    """A large upload, with a length or in chunks, to a path that is no model call arrives byte for byte, framed as it was sent."""
    data = bytes(range(256)) * 12_000

    def parts() -> Iterator[bytes]:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    answer = httpx.post(forwarder + "/v1/files", content=parts() if chunked else data, timeout=60)
    received = engine.received[0]
    assert (answer.status_code, received.body) == (200, data)
    assert received.header("content-length") == (None if chunked else str(len(data)))


def test_a_chunked_model_call_arrives_whole(engine: RecordingEngine, forwarder: str) -> None:
    """A model call that is uploaded in chunks reaches the engine with the same bytes."""
    httpx.post(forwarder + "/v1/responses", content=iter([b'{"inp', b'ut":"x"}']), timeout=60)
    assert engine.received[0].body == b'{"input":"x"}'


def test_no_state_is_kept_between_callers(engine: RecordingEngine, forwarder: str) -> None:
    """Cookies of one answer do not go out with the next call, and a redirect is the caller's to follow."""
    engine.default = Script(
        [b""], status=307, headers=[(b"location", b"/v1/models"), (b"set-cookie", b"a=1")]
    )
    first = call(forwarder, "GET", "/x")
    call(forwarder, "GET", "/x")
    assert (first.status, dict(first.headers)[b"location"]) == (307, b"/v1/models")
    assert [r.path for r in engine.received] == ["/x", "/x"]
    assert engine.received[1].header("cookie") is None


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([("authorization", "Bearer theirs")], {b"authorization": b"Bearer ours"}),
        ([("x-api-key", "theirs")], {b"authorization": b"Bearer ours", b"x-api-key": b"ours"}),
        ([], {b"authorization": b"Bearer ours"}),
    ],
)
def test_the_engines_key_replaces_the_callers(
    engine: RecordingEngine, sent: list[tuple[str, str]], expected: dict[bytes, bytes]
) -> None:
    """With `api_key` the engine gets that key, in the form that the caller used, and never the caller's own."""
    settings = ModelServerSettings(base_url=engine.url, api_key="ours")
    with Served(EngineForwarder(settings)) as served:
        call(served.url, "POST", "/v1/messages", b"{}", sent)
    keys = {k: v for k, v in engine.received[0].headers if k in (b"authorization", b"x-api-key")}
    assert keys == expected


def test_anthropics_own_api_gets_its_own_kind_of_key() -> None:
    """api.anthropic.com takes `x-api-key` alone."""
    fields = [(b"authorization", b"Bearer theirs"), (b"x", b"1")]
    assert with_key(fields, "ours", "https://api.anthropic.com") == [
        (b"x", b"1"),
        (b"x-api-key", b"ours"),
    ]


def test_trace_context_of_the_call_goes_on(engine: RecordingEngine, tmp_path: Path) -> None:
    """A captured call's own traceparent reaches the engine in place of the caller's; on any other path the caller's stays."""
    theirs = [("traceparent", f"00-{'1' * 32}-{'2' * 16}-01"), ("tracestate", "a=b")]
    app = build_model_server(settings_for(tmp_path), ModelServerSettings(base_url=engine.url))
    with Served(app) as served:
        call(served.url, "POST", "/ng-rollout/7-2/v1/responses", b"{}", theirs)
        call(served.url, "GET", "/ng-rollout/7-2/v1/models", None, theirs)
    captured, other = engine.received
    trace = lines(tmp_path)[0]["trace"]
    assert captured.header("traceparent") == f"00-{trace['trace_id']}-{trace['span_id']}-01"
    assert captured.header("tracestate") is None
    assert (other.header("traceparent"), other.header("tracestate")) == (theirs[0][1], "a=b")


def test_stream_usage_is_asked_for_and_kept(engine: RecordingEngine, tmp_path: Path) -> None:
    """With `request_stream_usage` the engine is asked for usage; the caller gets exactly what it would have got, the record has the usage."""
    usage = b'data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\n'
    text = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
    engine.default = stream_script(text, usage, b"data: [DONE]\n\n")
    app = build_model_server(
        settings_for(tmp_path, request_stream_usage=True), ModelServerSettings(base_url=engine.url)
    )
    with Served(app) as served:
        path = "/ng-rollout/7-2/v1/chat/completions"
        answer = call(served.url, "POST", path, b'{"stream":true,"messages":[]}')
        call(served.url, "POST", path, b'{"stream":true, "stream_options":{"include_usage":false}}')
    asked, refused = engine.received
    assert asked.json["stream_options"] == {"include_usage": True}
    assert refused.body == b'{"stream":true, "stream_options":{"include_usage":false}}'
    assert (answer.body, answer.complete) == (text + b"data: [DONE]\n\n", True)
    line = lines(tmp_path)[0]
    assert line["stream_usage_requested"] is True
    assert "prompt_tokens" in line["stream_usage_chunk"]
    assert line["response_raw"] == answer.body.decode()


def test_an_engine_below_a_path(engine: RecordingEngine) -> None:
    """An engine whose URL has a path keeps it in front of every request, and an application mounted below one does not send its own."""
    forwarder = EngineForwarder(ModelServerSettings(base_url=engine.url + "/api/v1/"))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await forwarder.aclose()

    app = Starlette(routes=[Mount("/mounted", app=forwarder)], lifespan=lifespan)
    with Served(app) as served:
        call(served.url, "GET", "/mounted/v1/models?x=%20")
    assert engine.received[0].target == b"/api/v1/models?x=%20"


@pytest.mark.parametrize("url", ["ftp://host", "127.0.0.1:8000", "http://", "http://[::1"])
def test_a_url_that_is_none_stops_the_start(url: str) -> None:
    """The server is not built for an engine that no request could reach."""
    with pytest.raises(SettingsError, match="engine"):
        EngineForwarder(ModelServerSettings(base_url=url))


def test_many_calls_at_once(engine: RecordingEngine, forwarder: str) -> None:
    """200 calls that all wait on the engine at the same time are all in it at the same time: no pool limit queues them."""
    held = stream_script(b"data: 1\n\n", b"data: [DONE]\n\n")
    held.hold_after = 1
    engine.default = held
    clients = [WireClient(forwarder) for _ in range(200)]
    for client in clients:
        client.start("POST", "/v1/chat/completions", b'{"stream":true}')
    assert all(client.read(chunks=1).chunks == [b"data: 1\n\n"] for client in clients)
    held.release.set()
    assert all(client.read().complete for client in clients)
    for client in clients:
        client.close()
    assert len(engine.received) == 200
