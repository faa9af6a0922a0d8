"""Engines behind TLS and behind a proxy, on the wire."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from otel_gym.counters import counted
from otel_gym.servers.engine import EngineForwarder
from otel_gym.settings import ModelServerSettings
from tests.engines.serving import Served
from tests.engines.wire import call

PATH = "/v1/responses"
LARGE = 5_000_000


class SecureEngine:
    """Answers over TLS: as many bytes as the path says, in chunks, and remembers how many connections it had and what it got."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.connections = 0
        self.bodies: list[int] = []
        self.open: list[socket.socket] = []
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                engine.connections += 1
                engine.open.append(self.request)

            def do_POST(self) -> None:
                engine.bodies.append(len(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                left = int(self.path.rpartition("=")[2])
                while left > 0:
                    part = b"x" * min(left, 50_000)
                    left -= len(part)
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that refuses our certificate, or connections that a test closes

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://localhost:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    made, key = tmp_path / "engine.pem", tmp_path / "engine.key"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-keyout", str(key), "-out", str(made), "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    return made, key


@pytest.fixture
def engine(certificate: tuple[Path, Path]) -> Iterator[SecureEngine]:
    running = SecureEngine(*certificate)
    yield running
    running.end()


def test_calls_over_tls(
    engine: SecureEngine, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small and large requests and answers pass whole over TLS, on one connection; one that the engine closed meanwhile costs no call."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with Served(EngineForwarder(ModelServerSettings(base_url=engine.url))) as served:
        for size in (2, LARGE, 0, 300_000):
            body = b"{" + b" " * size + b"}"
            answer = call(served.url, "POST", f"{PATH}?size={size}", body)
            assert (answer.status, len(answer.body), answer.complete) == (200, size, True)
        assert engine.connections == 1
        for one in engine.open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        assert call(served.url, "POST", f"{PATH}?size=3", b"{}").body == b"xxx"
        assert engine.connections == 2
    assert engine.bodies == [4, LARGE + 2, 2, 300_002, 2]


def test_a_certificate_that_nobody_trusts(engine: SecureEngine) -> None:
    """An engine whose certificate is not trusted is 502 with that reason, and never gets the request."""
    before = counted("engine.unreachable")
    with Served(EngineForwarder(ModelServerSettings(base_url=engine.url))) as served:
        answer = call(served.url, "POST", f"{PATH}?size=3", b"{}")
    assert answer.status == 502
    assert b"certificate" in answer.body.lower()
    assert engine.bodies == []
    assert counted("engine.unreachable") == before + 1


def test_calls_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's proxy gets calls of an engine elsewhere with the whole URL on their request line, and its connection is used again."""
    lines: list[bytes] = []
    connections: list[int] = []

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                connections.append(1)
                with connection:
                    while head := connection.recv(65536):
                        while not head.endswith(b"}"):
                            head += connection.recv(65536)
                        lines.append(head.partition(b"\r\n")[0])
                        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{listening.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        server = ModelServerSettings(base_url="http://engine.invalid:8000")
        with Served(EngineForwarder(server)) as served:
            for _ in range(2):
                answer = call(served.url, "POST", f"{PATH}?a=b%20c", b"{}")
                assert (answer.status, answer.body) == (200, b"{}")
    assert lines == [b"POST http://engine.invalid:8000/v1/responses?a=b%20c HTTP/1.1"] * 2
    assert len(connections) == 1
