"""Pins at the engine's end of the wire, however the caller's bytes came."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import brotli
import pytest
import zstandard

from otel_gym.servers.engine import EngineForwarder
from otel_gym.settings import ModelServerSettings
from tests.engines.recording import Received, RecordingEngine
from tests.engines.serving import Served
from tests.servers.test_sampling import WithCall

PLAIN = b'{"model":"m","messages":[],"temperature":0.2}'
LAID = {"model": "m", "messages": [], "temperature": 1.0, "top_k": -1}
BROTLI: Callable[[bytes], bytes] = brotli.compress
ENCODED = {
    "": PLAIN,
    "identity": PLAIN,
    "gzip": gzip.compress(PLAIN),
    "X-GZIP": gzip.compress(PLAIN),
    "deflate": zlib.compress(PLAIN),
    "br": BROTLI(PLAIN),
    "zstd": zstandard.compress(PLAIN),
    "br, gzip": gzip.compress(BROTLI(PLAIN)),
}


class Wire:
    """Sends bytes through a server to an engine."""

    def __init__(self, engine: RecordingEngine, app: WithCall, url: str) -> None:
        self.engine = engine
        self.app = app
        self.address = urlsplit(url)

    def __call__(
        self, body: bytes, headers: dict[str, str] | None = None, *, chunked: bool = False
    ) -> tuple[int, list[Received]]:
        """The answer's status, and what the engine received."""
        self.engine.reset()
        self.app.calls.clear()
        assert self.address.hostname is not None
        client = http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=30)
        parts = [body[at : at + 7] for at in range(0, len(body), 7)]
        content: Any = iter(parts) if chunked else body
        client.request(
            "POST", "/v1/chat/completions", content, headers or {}, encode_chunked=chunked
        )
        status = client.getresponse().status
        client.close()
        return status, self.engine.received


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    """Through a server that pins two parameters."""
    with RecordingEngine() as engine:
        pins = {"temperature": 1.0, "top_k": -1}
        server = ModelServerSettings(base_url=engine.url, sampling_overrides=pins)
        app = WithCall(EngineForwarder(server))
        with Served(app) as served:
            yield Wire(engine, app, served.url)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("encoding", ENCODED)
def test_every_encoding_and_framing(wire: Wire, encoding: str, chunked: bool) -> None:
    """A pin reaches the engine in plain JSON whatever the request's encoding, whole or in chunks."""
    headers = {"content-encoding": encoding} | ({"transfer-encoding": "chunked"} if chunked else {})
    status, (received,) = wire(ENCODED[encoding], headers, chunked=chunked)
    assert (status, received.json) == (200, LAID)
    assert received.header("content-encoding") in (None, "", "identity")


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/octet-stream", ""])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\r\n "])
def test_what_surrounds_the_json(wire: Wire, kind: str, before: bytes) -> None:
    """A wrong content type, white space and a byte order mark keep no pin away."""
    _, (received,) = wire(before + PLAIN + b"\n", {"content-type": kind})
    assert received.json == LAID


@pytest.mark.parametrize(
    "body",
    [
        b'{"temperature":2,"top_k":-1,"temperature":1}',
        b'{"temperature":1,"top_k":-1,"temperature":2}',
        b'{"temperatur\\u0065":2,"top_k":-1,"temperature":1}',
        b'{"temperatur\\u0065":2}',
        b'{"temperature":NaN,"top_k":-1}',
        b'{"temperature":"1.0","top_k":true}',
        b'{"temperature":null,"top_k":99999999999999999999999999}',
    ],
)
def test_no_other_value_is_left(wire: Wire, body: bytes) -> None:
    """The engine gets each pinned name once, in plain letters, with the pinned value, and the record says so."""
    _, (received,) = wire(body)
    assert received.json == {"temperature": 1, "top_k": -1}
    assert received.body.count(b'"') == 4
    account = wire.app.calls[-1].sampling
    assert account is not None
    assert account["effective"] == {"temperature": 1, "top_k": -1}
    assert account["outbound_sha256"] == hashlib.sha256(received.body).hexdigest()


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"", ""), (b" ", ""), (b"[]", ""), (b"null", ""), (b'"x"', ""), (b"7", ""), (PLAIN[:-1], ""),
        (PLAIN + PLAIN, ""), (b"temperature=2", ""), (b"\xff\xfe{\0}\0", ""), (b'{"x":"\xff"}', ""),
        (b'{"seed":' + b"9" * 5000 + b"}", ""), (b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}", ""),
        (PLAIN, "gzip"), (PLAIN, "snappy"), (gzip.compress(PLAIN)[:-12], "gzip"),
        (gzip.compress(bytes(300 << 20), 1), "gzip"),
    ],
    ids=lambda value: repr(value[:12]),
)  # fmt: skip
def test_what_takes_no_pin_goes_nowhere(wire: Wire, body: bytes, encoding: str) -> None:
    """A body that no pin can be laid over is refused with 400, and the engine hears nothing of it."""
    assert wire(body, {"content-encoding": encoding}) == (400, [])
