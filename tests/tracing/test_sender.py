"""One request and its answer, over real HTTP, HTTPS and gRPC servers."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from otel_gym.correlation.run import Run
from otel_gym.errors import ExportError, UsageProblem
from otel_gym.tracing.encode import SpanEncoder, encode_span
from otel_gym.tracing.endpoint import OtlpEndpoint, parse_headers, traces_endpoint
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.sender import Answer, open_sender
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

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's own name
        self.metadata = dict(context.invocation_metadata())
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
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full", "retry"),
        (grpc.StatusCode.UNAVAILABLE, "away", "retry"),
        (grpc.StatusCode.UNAUTHENTICATED, "who", "retry"),
    ],
)
def test_grpc_status_codes(
    service: tuple[Service, str], body: bytes, code: grpc.StatusCode, details: str, kind: str
) -> None:
    """What is wrong with the request is refused; everything else may change and is tried again."""
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
        (Reply(200, b"<html>a page</html>"), Answer("accepted")),
        (rejecting(2, "why"), Answer("accepted", "why", rejected_spans=2)),
    ],
)
def test_http_successes(receiver: Receiver, body: bytes, reply: Reply, expected: Answer) -> None:
    """A 200 is a success, except for the spans that it says were rejected."""
    receiver.answer = lambda request: reply
    assert send(OtlpEndpoint(f"{receiver.url}/v1/traces"), body) == expected


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
        ("http://h:4317/x", False, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://h:4317"),
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
        ("http://h", {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}),
        ("http://h", {"OTEL_EXPORTER_OTLP_COMPRESSION": "br"}),
        ("http://h", {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}),
    ],
)
def test_a_wrong_variable_is_named(configured: str, environment: dict[str, str]) -> None:
    """A value that cannot be used stops the start with the variable and its value in the message."""
    with pytest.raises(UsageProblem):
        traces_endpoint(configured, environment)


def test_headers_of_the_variable() -> None:
    """Members are percent-decoded; what is no member is passed over."""
    assert parse_headers("A=b%20c, d = e ,junk,=x,f=g=h") == {"a": "b c", "d": "e", "f": "g=h"}


def test_a_password_in_the_url_is_shown_nowhere(receiver: Receiver, body: bytes) -> None:
    """User name and password of a URL are sent and never written into a reason."""
    receiver.answer = lambda request: Reply(400, b"no")
    url = f"http://user:secret@127.0.0.1:{receiver.port}/v1/traces"
    answer = send(OtlpEndpoint(url), body)
    assert receiver.requests[0].headers["authorization"].startswith("Basic ")
    assert "secret" not in answer.reason
    assert f"127.0.0.1:{receiver.port}/v1/traces: HTTP 400" in answer.reason
