"""The five behaviours of sampling pins, on every generation path, streamed and not, at the engine's end of the wire."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import orjson
import pytest
import zstandard
from starlette.types import ASGIApp, Receive, Scope, Send

from otel_gym.capture import current
from otel_gym.capture.current import CurrentCall
from otel_gym.capture.routes import CAPTURED_PATHS
from otel_gym.counters import counted
from otel_gym.errors import SettingsError
from otel_gym.servers.engine import EngineForwarder
from otel_gym.servers.outbound import EngineExit
from otel_gym.settings import ModelServerSettings
from tests.engines.recording import RecordingEngine, Script, json_script, stream_script
from tests.engines.serving import Served
from tests.engines.wire import call

PATHS = sorted(CAPTURED_PATHS)
PINS = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}

Serve = Callable[..., str]


class WithCall:
    """Stands for the capture middleware: a call is current while the application below runs."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.calls: list[CurrentCall] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        dialect = CAPTURED_PATHS.get(scope["path"], "chat")
        self.calls.append(CurrentCall("7-2", "a" * 32, dialect, "b" * 32, "c" * 16, scope["path"]))
        token = current._call.set(self.calls[-1])
        try:
            await self.app(scope, receive, send)
        finally:
            current._call.reset(token)


@pytest.fixture(scope="module")
def running_engine() -> Iterator[RecordingEngine]:
    with RecordingEngine() as recording:
        yield recording


@pytest.fixture
def engine(running_engine: RecordingEngine) -> RecordingEngine:
    """The engine, with nothing received and no script left from the test before."""
    running_engine.reset()
    return running_engine


@pytest.fixture(scope="module")
def serve(running_engine: RecordingEngine) -> Iterator[Serve]:
    """Gives the URL of a forwarder in front of the recording engine; the keywords are keys of its block, `calls` gets the calls to come."""
    running: dict[str, tuple[WithCall, str]] = {}
    with ExitStack() as stack:

        def start(*, calls: list[CurrentCall] | None = None, **block: Any) -> str:
            key = repr(block)
            if key not in running:
                settings = ModelServerSettings(base_url=running_engine.url, **block)
                app = WithCall(EngineForwarder(settings))
                running[key] = app, stack.enter_context(Served(app)).url
            app, url = running[key]
            app.calls = calls if calls is not None else []
            return url

        yield start


def body_for(path: str, **more: Any) -> dict[str, Any]:
    """A request that its path understands."""
    content = {"/v1/responses": "input", "/v1/completions": "prompt"}.get(path)
    message = {"role": "user", "content": "hi"}
    return {"model": "m", content or "messages": "hi" if content else [message], **more}


def post(url: str, path: str, body: dict[str, Any], stream: bool = False) -> bytes:
    """Send `body`, streamed or not; the exact bytes that were sent."""
    sent = orjson.dumps({**body, "stream": True} if stream else body)
    assert call(url, "POST", path, sent, [("content-type", "application/json")]).complete
    return sent


every_path = pytest.mark.parametrize("path", PATHS)
streamed_or_not = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


@every_path
@streamed_or_not
def test_replaces_the_callers_value(
    engine: RecordingEngine, serve: Serve, path: str, stream: bool
) -> None:
    """A pin replaces what the caller sent; nothing else of the body changes."""
    body = body_for(path, temperature=0.2, top_p=0.5, user="u")
    post(serve(sampling_overrides=PINS), path, body, stream)
    assert engine.received[0].json == {**body, **({"stream": True} if stream else {}), **PINS}


@every_path
@streamed_or_not
def test_applies_when_none_was_sent(
    engine: RecordingEngine, serve: Serve, path: str, stream: bool
) -> None:
    """A pin is sent where the caller left the parameter out or null."""
    body = body_for(path, temperature=None)
    post(serve(sampling_overrides=PINS), path, body, stream)
    assert engine.received[0].json == {**body, **({"stream": True} if stream else {}), **PINS}


@every_path
@streamed_or_not
def test_no_pin_no_change(engine: RecordingEngine, serve: Serve, path: str, stream: bool) -> None:
    """Without a pin the body goes out byte for byte, however it is written, compressed or not."""
    url = serve()
    odd = b' {"temperature" : 0.20,"x":1E2, "x":"\\ud83d", "stream":%s}\n' % (
        b"true" if stream else b"false"
    )
    call(url, "POST", path, odd)
    call(url, "POST", path, gzip.compress(odd), [("content-encoding", "gzip")])
    plain, packed = engine.received
    assert plain.body == odd
    assert (packed.body, packed.header("content-encoding")) == (gzip.compress(odd), "gzip")


@every_path
@streamed_or_not
def test_wins_over_extra_body(
    engine: RecordingEngine, serve: Serve, path: str, stream: bool
) -> None:
    """The caller's own value wins over `extra_body`, and the pin over both."""
    url = serve(
        sampling_overrides={"temperature": 1.0},
        extra_body={"temperature": 0.1, "top_p": 0.3, "user": "extra", "min_p": 0.2},
    )
    post(url, path, body_for(path, top_p=0.9, user=None), stream)
    sent = engine.received[0].json
    assert sent["temperature"] == 1.0
    assert (sent["top_p"], sent["user"], sent["min_p"]) == (0.9, None, 0.2)


@streamed_or_not
def test_reaches_chat_served_through_completions(
    engine: RecordingEngine, serve: Serve, stream: bool
) -> None:
    """The completions path that chat takes with `use_completions_api` gets the pin like any other."""
    engine.answers("/v1/completions", completion_stream() if stream else completion())
    url = serve(
        use_completions_api=True,
        chat_template="{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
        sampling_overrides={"temperature": 1.0, "top_k": -1, "max_tokens": 7},
    )
    post(
        url,
        "/v1/chat/completions",
        body_for("/v1/chat/completions", temperature=0.1, max_completion_tokens=99),
        stream,
    )
    sent = next(r for r in engine.received if r.path == "/v1/completions").json
    expected = {
        "model": "m",
        "prompt": "<user>hi",
        "temperature": 1.0,
        "top_k": -1,
        "max_tokens": 7,
        "add_special_tokens": False,
    }
    assert sent == {**expected, **({"stream": True} if stream else {})}


def completion() -> Script:
    return json_script(
        {
            "id": "cmpl-1",
            "object": "text_completion",
            "choices": [{"index": 0, "text": "yes", "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 2, "completion_tokens": 1},
        }
    )


def completion_stream() -> Script:
    chunk = {"id": "cmpl-1", "object": "text_completion"}
    texts = [
        orjson.dumps({**chunk, "choices": [{"index": 0, "text": text, "finish_reason": reason}]})
        for text, reason in (("y", None), ("es", None), ("", "stop"))
    ]
    return stream_script(*(b"data: " + text + b"\n\n" for text in texts), b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions", {"max_tokens": 5, "stop": ["x"], "n": 1}),
        ("/v1/responses", {"max_output_tokens": 5, "stop": ["x"]}),
        ("/v1/messages", {"max_tokens": 5, "stop_sequences": ["x"]}),
        ("/v1/completions", {"max_tokens": 5, "stop": ["x"], "n": 1}),
    ],
)
def test_a_pin_is_sent_under_the_paths_name(
    engine: RecordingEngine, serve: Serve, path: str, expected: dict[str, Any]
) -> None:
    """`max_tokens`, `stop` and `n` go out as each API calls them, and not where it has none."""
    post(serve(sampling_overrides={"max_tokens": 5, "stop": ["x"], "n": 1}), path, body_for(path))
    assert engine.received[0].json == {**body_for(path), **expected}


@pytest.mark.parametrize(
    "spelling",
    [
        "/chat/completions",
        "//v1/chat/completions",
        "/v1/v1/chat/completions",
        "/v1/chat/completions/",
        "/v1/chat%2Fcompletions",
    ],
)
def test_no_spelling_of_a_path_escapes(
    engine: RecordingEngine, serve: Serve, spelling: str
) -> None:
    """An engine may answer other spellings of a path; the pin holds there too, and the path goes out as written."""
    post(serve(sampling_overrides=PINS), spelling, body_for("/v1/chat/completions"))
    assert engine.received[0].target == spelling.encode()
    assert engine.received[0].json["temperature"] == 1.0


@pytest.mark.parametrize("path", ["/tokenize", "/v1/embeddings", "/v1/messages/count_tokens"])
def test_other_paths_stay_byte_identical(engine: RecordingEngine, serve: Serve, path: str) -> None:
    """A path that does not generate is passed on byte for byte, pins or not."""
    odd = b'{ "prompt":"x","temperature":0.50 }'
    call(serve(sampling_overrides=PINS, extra_body={"a": 1}), "POST", path, odd)
    assert engine.received[0].body == odd


def test_the_same_values_change_no_byte(engine: RecordingEngine, serve: Serve) -> None:
    """A caller who sent the pinned values already is passed on in its own bytes, even compressed."""
    odd = gzip.compress(b'{"temperature": 1,  "top_p": 1.0, "top_k": -1}')
    url = serve(sampling_overrides=PINS)
    call(url, "POST", "/v1/responses", odd, [("content-encoding", "gzip")])
    assert engine.received[0].body == odd


@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
def test_a_compressed_request_is_decoded_first(
    engine: RecordingEngine, serve: Serve, encoding: str
) -> None:
    """Where a pin changes a compressed body it goes out decoded, with the right length, no encoding and no digest of other bytes."""
    body = orjson.dumps(body_for("/v1/responses", temperature=0.3))
    packed = zstandard.compress(body) if encoding == "zstd" else gzip.compress(body)
    url = serve(sampling_overrides={"temperature": 1.0})
    digests = [(name, "sha-256=:AAAA:") for name in ("content-digest", "repr-digest", "digest")]
    call(url, "POST", "/v1/responses", packed, [("content-encoding", encoding), *digests])
    received = engine.received[0]
    assert received.json == body_for("/v1/responses", temperature=1.0)
    for gone in ("content-encoding", "content-digest", "repr-digest", "digest"):
        assert received.header(gone) is None
    assert received.header("content-length") == str(len(received.body))


@pytest.mark.parametrize(
    ("body", "encoding"), [(b"[1]", ""), (b"{", ""), (b"", ""), (b"\0\1", "zstd"), (b"{}", "x-new")]
)
def test_a_body_that_takes_no_pin_is_refused(
    engine: RecordingEngine, serve: Serve, body: bytes, encoding: str
) -> None:
    """With a pin, a body that is no readable JSON object never reaches the engine: 400, counted, and the record says so."""
    calls: list[CurrentCall] = []
    url = serve(sampling_overrides=PINS, calls=calls)
    before = counted("sampling.refused")
    headers = [("content-encoding", encoding)] if encoding else []
    answer = call(url, "POST", "/v1/chat/completions", body, headers)
    assert (answer.status, engine.received) == (400, [])
    assert orjson.loads(answer.body)["error"]["code"] == "sampling_pin_not_applicable"
    assert counted("sampling.refused") == before + 1
    assert calls[0].outcome["local_response_reason"] == "sampling_pin_not_applicable"


def test_what_json_writers_refuse_survives_a_pin(engine: RecordingEngine, serve: Serve) -> None:
    """Lone surrogates and long integers, which real agents send, are still there beside the pin."""
    body = b'{"input":"\\ud83d cut","seed":123456789012345678901234567890}'
    call(serve(sampling_overrides={"temperature": 1.0}), "POST", "/v1/responses", body)
    assert (
        engine.received[0].body
        == b'{"input":"\\ud83d cut","seed":123456789012345678901234567890,"temperature":1.0}'
    )


def test_a_new_path_cannot_forget_the_pins(engine: RecordingEngine) -> None:
    """A path added to the table of generating paths is pinned with no further code: there is one exit."""
    app = EngineForwarder(ModelServerSettings(base_url=engine.url, sampling_overrides=PINS))
    app.exit = EngineExit(app.exit.server, paths={**CAPTURED_PATHS, "/v9/generate": "completions"})
    with Served(app) as served:
        post(served.url, "/v9/generate", {"prompt": "x", "temperature": 0.1})
    assert engine.received[0].json == {"prompt": "x", **PINS}


@every_path
@streamed_or_not
def test_the_record_says_requested_pinned_and_effective(
    engine: RecordingEngine, serve: Serve, path: str, stream: bool
) -> None:
    """The call's `sampling` holds what was sent by the caller, what was pinned, what went out, and the digest of the very bytes that did."""
    calls: list[CurrentCall] = []
    url = serve(sampling_overrides={"temperature": 1.0, "top_k": -1}, calls=calls)
    before = counted("sampling.overrides")
    post(url, path, body_for(path, temperature=0.5, top_p=0.9), stream)
    assert calls[0].sampling == {
        "requested": {"temperature": 0.5, "top_p": 0.9},
        "pinned": {"temperature": 1.0, "top_k": -1},
        "effective": {"temperature": 1.0, "top_p": 0.9, "top_k": -1},
        "overridden": ["temperature"],
        "outbound_sha256": hashlib.sha256(engine.received[0].body).hexdigest(),
    }
    assert counted("sampling.overrides") == before + 1


def test_without_a_profile_the_record_has_no_sampling(
    engine: RecordingEngine, serve: Serve
) -> None:
    """A server that has no say in sampling says nothing about it: the request itself is the account."""
    calls: list[CurrentCall] = []
    post(serve(calls=calls), "/v1/responses", body_for("/v1/responses", temperature=0.5))
    assert calls[0].sampling is None
    assert calls[0].outcome == {
        "upstream_attempted": True,
        "response_source": "upstream",
        "upstream_status_code": 200,
    }


def test_the_configured_model_fills_in(engine: RecordingEngine, serve: Serve) -> None:
    """The block's `model` is sent where the caller named none; a caller's own model and bytes stay."""
    url = serve(model="engine-model")
    call(url, "POST", "/v1/responses", b'{"input": "x"}')
    call(url, "POST", "/v1/responses", b'{"input": "x",  "model":"own"}')
    assert engine.received[0].json == {"input": "x", "model": "engine-model"}
    assert engine.received[1].body == b'{"input": "x",  "model":"own"}'


def test_the_profile_can_be_asked_for(engine: RecordingEngine, serve: Serve) -> None:
    """`GET /otel-gym/sampling` answers with the pins, in words and by path, and does not reach the engine."""
    url = serve(sampling_overrides={"temperature": 1.0, "max_output_tokens": 9}, name="policy")
    answer = call(url, "GET", "/otel-gym/sampling")
    assert orjson.loads(answer.body) == {
        "server": "policy",
        "profile": "pins temperature=1.0, max_output_tokens=9",
        "pinned": {"temperature": 1.0, "max_output_tokens": 9},
        "by_dialect": {
            "responses": {"temperature": 1.0, "max_output_tokens": 9},
            "chat": {"temperature": 1.0, "max_completion_tokens": 9},
            "messages": {"temperature": 1.0, "max_tokens": 9},
            "completions": {"temperature": 1.0, "max_tokens": 9},
        },
        "extra_body": [],
        "use_completions_api": False,
    }
    assert orjson.loads(call(serve(), "GET", "/otel-gym/sampling").body)["pinned"] == {}
    assert engine.received == []


def test_a_wrong_pin_stops_the_start() -> None:
    """The server is not built with a pin that no engine could obey."""
    with pytest.raises(SettingsError, match=r"policy.sampling_overrides.temperature: -1"):
        EngineForwarder(
            ModelServerSettings(
                name="policy", base_url="http://127.0.0.1:1", sampling_overrides={"temperature": -1}
            )
        )
