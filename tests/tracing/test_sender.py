"""One request and its answer, over real HTTP, HTTPS and gRPC servers."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from otel_gym.correlation.run import Run
from otel_gym.errors import ExportError, UsageProblem
from otel_gym.tracing.answers import Answer, http_answer
from otel_gym.tracing.encode import SpanEncoder, encode_span
from otel_gym.tracing.endpoint import OtlpEndpoint, parse_headers, traces_endpoint
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.sender import open_sender
from otel_gym.tracing.spans import RecordPlace, span_from_record
from tests.tracing.receiver import Receiver, Reply, rejecting
from tests.tracing.records import gym_record


@pytest.fixture
def body(run: Run) -> bytes:
    """A request with one span."""
    options = SpanOptions()
    span = span_from_record(gym_record(1), RecordPlace("1-0", "f", 0), run, options)
    return SpanEncoder(run, options).request([encode_span(span)])


def send(endpoint: OtlpEndpoint, body: bytes) -> Answer:
    sender = open_sender(endpoint)
    try:
        return sender.send(body)
    finally:
        sender.close()


class Service(trace_service_pb2_grpc.TraceServiceServicer):
    """A real OTLP/gRPC service that fails as it is told."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.metadata: dict[str, Any] = {}
        self.fail: tuple[grpc.StatusCode, str] | None = None
        self.rejected = 0
        self.trailing: Any = ()

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's own name
        self.metadata = dict(context.invocation_metadata())
        context.set_trailing_metadata(self.trailing)
        if self.fail is not None:
            context.abort(*self.fail)
        self.requests.append(request)
        response = trace_service_pb2.ExportTraceServiceResponse()
        if self.rejected:
            response.partial_success.rejected_spans = self.rejected
            response.partial_success.error_message = "no"
        return response


@pytest.fixture
def service() -> Iterator[tuple[Service, str]]:
    """A gRPC server and its URL."""
    server = grpc.server(ThreadPoolExecutor(2))
    made = Service()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(made, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield made, f"http://127.0.0.1:{port}"
    server.stop(None)


def test_grpc_carries_the_same_request(service: tuple[Service, str], body: bytes) -> None:
    """The raw bytes are a request to the service's own stubs, with headers as metadata, with and without compression."""
    server, url = service
    for compression in ("none", "gzip"):
        endpoint = OtlpEndpoint(url, "grpc", {"tenant": "a"}, compression)  # type: ignore[arg-type]
        assert send(endpoint, body) == Answer("accepted")
    assert server.metadata["tenant"] == "a"
    assert [each.SerializeToString(deterministic=True) for each in server.requests] == [
        trace_service_pb2.ExportTraceServiceRequest.FromString(body).SerializeToString(
            deterministic=True
        )
    ] * 2


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "bad", "refused"),
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "grpc: received message larger than max (5 vs. 4)",
            "refused",
        ),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full", "failed"),
        (grpc.StatusCode.UNAVAILABLE, "away", "retry"),
        (grpc.StatusCode.UNAUTHENTICATED, "who", "failed"),
        (grpc.StatusCode.OUT_OF_RANGE, "which", "failed"),
        (grpc.StatusCode.INTERNAL, "what", "failed"),
    ],
)
def test_grpc_status_codes(
    service: tuple[Service, str], body: bytes, code: grpc.StatusCode, details: str, kind: str
) -> None:
    """What is wrong with the request is refused, a backend that is away or busy is waited for, and anything else is looked into."""
    server, url = service
    server.fail = (code, details)
    answer = send(OtlpEndpoint(url, "grpc"), body)
    assert answer.kind == kind
    assert code.name in answer.reason
    assert details in answer.reason


def test_grpc_partial_success(service: tuple[Service, str], body: bytes) -> None:
    """Rejected spans are counted over gRPC as over HTTP."""
    server, url = service
    server.rejected = 1
    assert send(OtlpEndpoint(url, "grpc"), body) == Answer("accepted", "no", rejected_spans=1)


def test_a_dead_server_is_tried_again(body: bytes) -> None:
    """A refused connection is an answer like any other, over both protocols."""
    dead = Receiver()
    dead.close()
    for protocol in ("http/protobuf", "grpc"):
        endpoint = OtlpEndpoint(f"{dead.url}/v1/traces", protocol, timeout_s=2.0)  # type: ignore[arg-type]
        assert send(endpoint, body).kind == "retry"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(), Answer("accepted")),
        (Reply(202, b"taken"), Answer("accepted")),
        (Reply(200, b"{not json", {"content-type": "application/json"}), Answer("accepted")),
        (Reply(200, b"odd", {"content-encoding": "gzip"}), Answer("accepted")),
        (rejecting(2, "why"), Answer("accepted", "why", rejected_spans=2)),
        (
            Reply(
                200,
                b'{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "in JSON"}}',
                {"content-type": "application/json"},
            ),
            Answer("accepted", "in JSON", rejected_spans=1),
        ),
    ],
)
def test_http_successes(receiver: Receiver, body: bytes, reply: Reply, expected: Answer) -> None:
    """A 200 is a success, except for the spans that it says were rejected."""
    receiver.answer = lambda request: reply
    assert send(OtlpEndpoint(f"{receiver.url}/v1/traces"), body) == expected


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        (Reply(429), "retry", "HTTP 429"),
        (Reply(503), "retry", "HTTP 503"),
        (Reply(500, b"boom"), "failed", "HTTP 500 boom"),
        (Reply(502), "failed", "HTTP 502"),
        (Reply(401), "failed", "HTTP 401"),
        (Reply(404), "failed", "HTTP 404"),
        (
            Reply(307, headers={"location": "https://user:pw@other/v1/traces?key=pw"}),
            "failed",
            "HTTP 307: redirects to https://other/v1/traces, which is not followed",
        ),
        (Reply(200, b"part", breaks_off=True), "failed", "RemoteProtocolError"),
        (Reply(200, b"<html>a page</html>"), "failed", "is this an OTLP receiver?"),
        (Reply(200, b"hm", {"content-type": "text/html; charset=utf-8"}), "failed", "a web page"),
    ],
)
def test_http_answers_without_a_verdict(
    receiver: Receiver, body: bytes, reply: Reply, kind: str, told: str
) -> None:
    """A busy backend is waited for; any other code, a broken answer and a web page are failures with the reason."""
    receiver.answer = lambda request: reply
    answer = send(OtlpEndpoint(f"{receiver.url}/v1/traces"), body)
    assert answer.kind == kind
    assert told in answer.reason
    assert "pw" not in answer.reason


def raw_server(*answers: bytes, pause_s: float = 0.0) -> tuple[socket.socket, str]:
    """A server that reads a request and writes these bytes, with a pause between them, whatever was asked."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(1 << 20)
                    for piece in answers:
                        connection.sendall(piece)
                        time.sleep(pause_s)

    threading.Thread(target=serve, daemon=True).start()
    return listening, f"http://127.0.0.1:{listening.getsockname()[1]}/v1/traces"


def test_an_answer_that_is_not_http_is_a_failure(body: bytes) -> None:
    """Bytes that are no HTTP, and a connection that is closed without an answer, raise nothing."""
    for answers in ((b"\x00\x01 garbage \xff\r\n\r\n",), ()):
        listening, url = raw_server(*answers)
        with listening:
            assert send(OtlpEndpoint(url), body).kind == "failed"


def test_an_answer_that_dribbles_or_never_ends_is_cut(body: bytes) -> None:
    """Of a body that comes drop by drop, or is large, only a bounded part is waited for and read."""
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    for answers, pause_s in (((head, *[b"x"] * 10_000), 0.05), ((head, *[b"x" * 9999] * 999), 0.0)):
        listening, url = raw_server(*answers, pause_s=pause_s)
        with listening:
            assert send(OtlpEndpoint(url, timeout_s=0.3), body).kind == "accepted"


def test_http_refusals_carry_their_reason(receiver: Receiver, body: bytes) -> None:
    """400 and 413 refuse the request; the server's words are kept, in one line of bounded length."""
    receiver.answer = lambda request: Reply(400, b"line one\nline \x00 two" + b"x" * 999)
    answer = send(OtlpEndpoint(f"{receiver.url}/v1/traces"), body)
    assert answer.kind == "refused"
    assert "HTTP 400 line one line two" in answer.reason
    assert len(answer.reason) <= 300
    receiver.answer = lambda request: Reply(413)
    assert send(OtlpEndpoint(f"{receiver.url}/v1/traces"), body).kind == "refused"


def test_http_overload_says_when_to_come_back(receiver: Receiver, body: bytes) -> None:
    """Retry-After is read in seconds and bounded."""
    receiver.answer = lambda request: Reply(503, headers={"retry-after": "7"})
    assert send(OtlpEndpoint(f"{receiver.url}/v1/traces"), body).retry_after_s == 7.0
    receiver.answer = lambda request: Reply(429, headers={"retry-after": "99999"})
    assert send(OtlpEndpoint(f"{receiver.url}/v1/traces"), body).retry_after_s == 300.0
    receiver.answer = lambda request: Reply(429, headers={"retry-after": "soon"})
    assert send(OtlpEndpoint(f"{receiver.url}/v1/traces"), body).retry_after_s is None


def test_a_date_to_come_back_at_is_read_by_the_backends_clock() -> None:
    """Retry-After as a date counts from the answer's own Date, so that a clock that is off changes nothing; a date that has passed is now."""
    headers = {"date": "Wed, 21 Oct 2015 07:27:30 GMT"}
    for date, expected_s in (
        ("Wed, 21 Oct 2015 07:28:00 GMT", 30.0),
        ("Wed, 21 Oct 2015 07:20:00 GMT", 0.0),
        ("Wed, 21 Oct 2025 07:20:00 GMT", 300.0),
    ):
        answer = http_answer("here", 503, {**headers, "retry-after": date}, b"")
        assert answer.retry_after_s == expected_s
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    waited_s = http_answer("here", 429, {"retry-after": soon}, b"").retry_after_s
    assert waited_s is not None
    assert 50 < waited_s <= 60


def test_grpc_says_when_to_come_back(service: tuple[Service, str], body: bytes) -> None:
    """RetryInfo is read from the details of the status, where servers in Go put it, and from a field of its own; with it an exhausted backend is waited for."""
    server, url = service
    info = error_details_pb2.RetryInfo()
    info.retry_delay.FromMilliseconds(2500)
    status = status_pb2.Status(code=8, message="busy")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="full"))
    status.details.add().Pack(info)
    server.fail = (grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")
    for key, value in (
        ("grpc-status-details-bin", status.SerializeToString()),
        ("google.rpc.retryinfo-bin", info.SerializeToString()),
    ):
        server.trailing = ((key, value),)
        answer = send(OtlpEndpoint(url, "grpc"), body)
        assert (answer.kind, answer.retry_after_s) == ("retry", 2.5)
    server.trailing = (("grpc-status-details-bin", b"\xff\xff"),)
    answer = send(OtlpEndpoint(url, "grpc"), body)
    assert (answer.kind, answer.retry_after_s) == ("failed", None)


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_http_compression(receiver: Receiver, body: bytes, compression: Any) -> None:
    """A compressed body arrives as what it was."""
    endpoint = OtlpEndpoint(f"{receiver.url}/v1/traces", compression=compression)
    assert send(endpoint, body) == Answer("accepted")
    assert receiver.requests[0].body == body
    assert receiver.requests[0].headers["content-encoding"] == compression


def test_certificates_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    """A wrong OTEL_EXPORTER_OTLP_CERTIFICATE is told, over both protocols."""
    missing = str(tmp_path / "no.pem")
    for protocol in ("http/protobuf", "grpc"):
        with pytest.raises(ExportError, match="cannot be read"):
            open_sender(OtlpEndpoint("https://127.0.0.1:1", protocol, certificate=missing))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key and a self-signed certificate for 127.0.0.1, made for this run."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    key, made = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(made),
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return key, made


def test_tls_over_http(certificate: tuple[Path, Path], body: bytes) -> None:
    """The certificate of the variable is trusted, and no other is."""
    key, made = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    receiver = Receiver(tls=context)
    try:
        url = f"https://127.0.0.1:{receiver.port}/v1/traces"
        assert send(OtlpEndpoint(url, certificate=str(made)), body) == Answer("accepted")
        answer = send(OtlpEndpoint(url), body)
        assert answer.kind == "retry"
        assert "certificate" in answer.reason.lower()
    finally:
        receiver.close()


def test_tls_over_grpc(certificate: tuple[Path, Path], body: bytes) -> None:
    """gRPC with an https URL is encrypted and checks the server."""
    key, made = certificate
    server = grpc.server(ThreadPoolExecutor(2))
    service = Service()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(service, server)
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), made.read_bytes())])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        url = f"https://127.0.0.1:{port}"
        assert send(OtlpEndpoint(url, "grpc", certificate=str(made)), body) == Answer("accepted")
        assert send(OtlpEndpoint(url, "grpc", timeout_s=2.0), body).kind == "retry"
        assert len(service.requests) == 1
    finally:
        server.stop(None)


@pytest.mark.parametrize(
    ("configured", "explicit", "environment", "url"),
    [
        (None, False, {}, None),
        ("http://h:4318", False, {}, "http://h:4318/v1/traces"),
        ("http://h:4318/base/", False, {}, "http://h:4318/base/v1/traces"),
        ("http://h:4318", True, {}, "http://h:4318/v1/traces"),
        ("http://h:4318/own/path", True, {}, "http://h:4318/own/path"),
        (
            "http://h/as/is",
            False,
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://h/as/is"},
            "http://h/as/is",
        ),
        ("http://h:4318/base/?key=v", False, {}, "http://h:4318/base/v1/traces?key=v"),
        ("http://[::1]:4318", False, {}, "http://[::1]:4318/v1/traces"),
        ("http://h:4317/x", False, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://h:4317"),
        (
            "unix:///run/otlp",
            True,
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "unix:///run/otlp",
        ),
    ],
)
def test_the_url_of_an_endpoint(
    configured: str | None, explicit: bool, environment: dict[str, str], url: str | None
) -> None:
    """A base URL gets the signal's path over HTTP; a URL given for traces, or with a path by hand, is taken as it stands."""
    endpoint = traces_endpoint(configured, environment, explicit=explicit)
    assert (endpoint.url if endpoint else None) == url


def test_variables_of_the_signal_win() -> None:
    """OTEL_EXPORTER_OTLP_TRACES_* stands above OTEL_EXPORTER_OTLP_*."""
    endpoint = traces_endpoint(
        "http://h:4318",
        {
            "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "4",
            "OTEL_EXPORTER_OTLP_HEADERS": "a=1",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "b=2",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        },
    )
    assert endpoint is not None
    assert (endpoint.timeout_s, endpoint.headers, endpoint.compression) == (4.0, {"b": "2"}, "gzip")
    assert "headers" not in repr(endpoint), "headers carry secrets and are not shown"


@pytest.mark.parametrize(
    ("configured", "environment"),
    [
        ("ftp://h", {}),
        ("http://", {}),
        ("http://h:port", {}),
        ("http://[::1", {}),
        ("unix:///run/otlp", {}),
        ("http://h", {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%0Asecret"}),
        ("http://h", {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=s\u00e9cret"}),
        ("http://h", {"OTEL_EXPORTER_OTLP_HEADERS": "authori zation=secret"}),
        ("ftp://user:secret@h", {}),
        ("http://h", {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}),
        ("http://h", {"OTEL_EXPORTER_OTLP_COMPRESSION": "br"}),
        ("http://h", {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}),
    ],
)
def test_a_wrong_variable_is_named(configured: str, environment: dict[str, str]) -> None:
    """A value that cannot be used stops the start with the variable and its value in the message."""
    with pytest.raises(UsageProblem) as problem:
        traces_endpoint(configured, environment)
    assert "cret" not in str(problem.value), "secrets are not shown"


def test_headers_of_the_variable() -> None:
    """Members are percent-decoded; what is no member is passed over."""
    assert parse_headers("A=b%20c, d = e ,junk,=x,f=g=h") == {"a": "b c", "d": "e", "f": "g=h"}


def test_a_password_in_the_url_is_shown_nowhere(
    receiver: Receiver, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """User name, password and query of a URL are sent, and written neither into a reason nor, by httpx, into a log."""
    caplog.set_level(logging.DEBUG)
    receiver.answer = lambda request: Reply(400, b"no")
    url = f"http://user:secret@127.0.0.1:{receiver.port}/v1/traces?key=secret"
    answer = send(OtlpEndpoint(url), body)
    assert receiver.requests[0].headers["authorization"].startswith("Basic ")
    assert "secret" not in answer.reason
    assert f"127.0.0.1:{receiver.port}/v1/traces: HTTP 400" in answer.reason
    assert receiver.requests[0].path == "/v1/traces?key=secret"
    assert "secret" not in caplog.text


def test_ipv6(body: bytes) -> None:
    """An address in brackets works over both protocols."""
    try:
        receiver = Receiver(host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    try:
        assert send(OtlpEndpoint(f"{receiver.url}/v1/traces"), body) == Answer("accepted")
    finally:
        receiver.close()
    with grpc_service("[::1]:0") as (service, port):
        endpoint = OtlpEndpoint(f"http://[::1]:{port}", "grpc")
        assert send(endpoint, body) == Answer("accepted")
        assert len(service.requests) == 1


def test_grpc_over_a_unix_socket(tmp_path: Path, body: bytes) -> None:
    """A Collector beside the server can listen on a path instead of a port."""
    target = f"unix://{tmp_path}/otlp"
    with grpc_service(target) as (service, _):
        endpoint = traces_endpoint(target, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, explicit=True)
        assert endpoint is not None
        assert send(endpoint, body) == Answer("accepted")
        assert len(service.requests) == 1


@contextlib.contextmanager
def grpc_service(
    address: str, credentials: grpc.ServerCredentials | None = None
) -> Iterator[tuple[Service, int]]:
    """A gRPC server at `address`, and its port."""
    server = grpc.server(ThreadPoolExecutor(2))
    made = Service()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(made, server)
    port = (
        server.add_insecure_port(address)
        if credentials is None
        else server.add_secure_port(address, credentials)
    )
    server.start()
    try:
        yield made, port
    finally:
        server.stop(None)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate authority (ca), and a server's and a client's key and certificate that it signed."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("authority")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], check=True, capture_output=True, cwd=folder)

    run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem",
        "-subj", "/CN=authority of a test")  # fmt: skip
    for name in ("server", "client"):
        (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
        run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")  # fmt: skip
        run("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "extensions", "-out", f"{name}.pem")  # fmt: skip
    return folder


def test_client_certificates(authority: Path, body: bytes) -> None:
    """With an own authority both sides prove who they are, over both protocols; without a client's certificate nothing is sent."""
    variables = {
        "OTEL_EXPORTER_OTLP_CERTIFICATE": str(authority / "ca.pem"),
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(authority / "client.key"),
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(authority / "client.pem"),
        "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
    }
    strangers = {name: value for name, value in variables.items() if "CLIENT" not in name}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem", authority / "server.key")
    context.load_verify_locations(authority / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    receiver = Receiver(tls=context)
    credentials = grpc.ssl_server_credentials(
        [((authority / "server.key").read_bytes(), (authority / "server.pem").read_bytes())],
        (authority / "ca.pem").read_bytes(),
        require_client_auth=True,
    )
    try:
        with grpc_service("127.0.0.1:0", credentials) as (service, port):
            for protocol, at in (("http/protobuf", receiver.port), ("grpc", port)):
                choice = {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
                known = traces_endpoint(f"https://127.0.0.1:{at}", variables | choice)
                assert known is not None
                assert send(known, body) == Answer("accepted")
                unknown = traces_endpoint(f"https://127.0.0.1:{at}", strangers | choice)
                assert unknown is not None
                assert send(unknown, body).kind in ("retry", "failed")
            assert len(service.requests) == len(receiver.requests) == 1
    finally:
        receiver.close()
