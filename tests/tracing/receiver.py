"""A real OTLP/HTTP receiver on loopback that keeps what it gets and answers as a test scripts it."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span


@dataclass
class Reply:
    """How the receiver answers one request."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    keep: bool = True
    """Whether the spans of the request count as received."""
    breaks_off: bool = False
    """Whether the connection is closed in the middle of the answer."""


def rejecting(count: int, message: str) -> Reply:
    """A 200 that says `count` spans were not taken."""
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = count
    response.partial_success.error_message = message
    return Reply(body=response.SerializeToString(), keep=False)


@dataclass
class Received:
    """One request."""

    headers: dict[str, str]
    body: bytes
    message: ExportTraceServiceRequest
    path: str


class Receiver:
    """Listens until it is closed; `answer` decides what becomes of a request."""

    def __init__(
        self, port: int = 0, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self.requests: list[Received] = []
        self.kept: list[Received] = []
        self.answer: Callable[[Received], Reply] = lambda request: Reply()
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                encoding = self.headers.get("content-encoding", "")
                if encoding == "gzip":
                    body = gzip.decompress(body)
                elif encoding == "deflate":
                    body = zlib.decompress(body)
                if self.path.endswith("/v1/metrics"):
                    reply = Reply()
                else:
                    reply = receiver._on_request(
                        {key.lower(): value for key, value in self.headers.items()}, body, self.path
                    )
                self.send_response(reply.status)
                for key, value in reply.headers.items():
                    self.send_header(key, value)
                self.send_header("content-length", str(len(reply.body) + 10 * reply.breaks_off))
                self.end_headers()
                self.wfile.write(reply.body)
                self.close_connection = reply.breaks_off

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that refuses our certificate, or goes away, is a test's own doing

        self._server = Server((host, port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port: int = self._server.server_address[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _on_request(self, headers: dict[str, str], body: bytes, path: str) -> Reply:
        message = ExportTraceServiceRequest()
        message.ParseFromString(body)
        received = Received(headers, body, message, path)
        with self._lock:
            self.requests.append(received)
            reply = self.answer(received)
            if reply.keep and reply.status == 200:
                self.kept.append(received)
        return reply

    @property
    def resource_spans(self) -> list[ResourceSpans]:
        """What was kept, as it came."""
        with self._lock:
            return [part for request in self.kept for part in request.message.resource_spans]

    @property
    def spans(self) -> list[Span]:
        """All kept spans, in the order of their coming."""
        return [
            span
            for part in self.resource_spans
            for scope in part.scope_spans
            for span in scope.spans
        ]

    @property
    def distinct(self) -> dict[str, set[bytes]]:
        """Kept spans by span id, each with its distinct encodings."""
        found: dict[str, set[bytes]] = {}
        for span in self.spans:
            found.setdefault(span.span_id.hex(), set()).add(span.SerializeToString())
        return found


def span_count(request: Received) -> int:
    """How many spans a request carries."""
    return sum(
        len(scope.spans) for part in request.message.resource_spans for scope in part.scope_spans
    )
