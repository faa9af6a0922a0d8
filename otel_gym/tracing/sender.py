"""One OTLP request and its answer, over HTTP or gRPC.

The official exporters are not used for spans: they drop a whole batch on 400 and 413, ignore `partial_success`, cannot split by size, and block their
caller through their own retries. Here every answer is told to `delivery`, which decides. HTTP goes through httpx, gRPC through grpcio with the
service's method and raw bytes; each is loaded only where it is used.
"""

from __future__ import annotations

import gzip
import ssl
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_gym.errors import ExportError
from otel_gym.tracing.endpoint import OtlpEndpoint

if TYPE_CHECKING:
    import httpx

GRPC_METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
GZIP_LEVEL: Final = 1
"""Half the CPU of the default level for batches of like spans, which shrink to a few per cent anyway."""
MAX_REASON_LENGTH: Final = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """What a backend made of a request."""

    kind: Literal["accepted", "retry", "refused"]
    """`refused`: the request can never be accepted as it is, because of a span in it or its size."""
    reason: str = ""
    retry_after_s: float | None = None
    rejected_spans: int = 0
    """Of an accepted request: spans that the backend said it did not take (`partial_success`)."""


ACCEPTED: Final = Answer("accepted")


class Sender(Protocol):
    """Sends one request; never raises for what the network or the backend does."""

    def send(self, body: bytes) -> Answer:
        """Sends a serialised `ExportTraceServiceRequest` and waits for the answer."""
        ...

    def close(self) -> None:
        """Gives up the connection."""
        ...


def open_sender(endpoint: OtlpEndpoint) -> Sender:
    """A sender for `endpoint`. Raises `ExportError` for certificates that cannot be read."""
    return GrpcSender(endpoint) if endpoint.protocol == "grpc" else HttpSender(endpoint)


class HttpSender:
    """OTLP/HTTP with protobuf bodies: https://opentelemetry.io/docs/specs/otlp/#otlphttp."""

    def __init__(self, endpoint: OtlpEndpoint) -> None:
        import httpx

        self._endpoint = endpoint
        self._headers = {
            "user-agent": "OTel-OTLP-Exporter-otel-gym",
            **endpoint.headers,
            "content-type": "application/x-protobuf",
        }
        if endpoint.compression != "none":
            self._headers["content-encoding"] = endpoint.compression
        self._client = httpx.Client(
            timeout=endpoint.timeout_s, verify=_tls_context(endpoint), follow_redirects=False
        )
        self._transport_error = httpx.TransportError

    def send(self, body: bytes) -> Answer:
        """See `Sender`."""
        try:
            response = self._client.post(
                self._endpoint.url,
                content=_compressed(body, self._endpoint.compression),
                headers=self._headers,
            )
        except self._transport_error as error:
            return Answer("retry", f"{self._endpoint.shown}: {type(error).__name__}: {error}")
        return self._answer(response)

    def close(self) -> None:
        """See `Sender`."""
        self._client.close()

    def _answer(self, response: httpx.Response) -> Answer:
        status = response.status_code
        if 200 <= status < 300:
            return _partial(response.content)
        reason = f"{self._endpoint.shown}: HTTP {status} {_message(response)}".rstrip()
        if status in (400, 413):
            return Answer("refused", reason[:MAX_REASON_LENGTH])
        return Answer(
            "retry", reason[:MAX_REASON_LENGTH], _seconds(response.headers.get("retry-after"))
        )


class GrpcSender:
    """OTLP/gRPC: https://opentelemetry.io/docs/specs/otlp/#otlpgrpc."""

    _REFUSED: Final = frozenset({"INVALID_ARGUMENT", "OUT_OF_RANGE"})

    def __init__(self, endpoint: OtlpEndpoint) -> None:
        import grpc  # type: ignore[import-untyped] # ships no types

        parts = urlsplit(endpoint.url)
        target = f"{parts.hostname}:{parts.port or 4317}"
        if endpoint.is_tls:
            credentials = grpc.ssl_channel_credentials(
                _read(endpoint.certificate),
                _read(endpoint.client_key),
                _read(endpoint.client_certificate),
            )
            self._channel: Any = grpc.secure_channel(target, credentials)
        else:
            self._channel = grpc.insecure_channel(target)
        self._call = self._channel.unary_unary(
            GRPC_METHOD, request_serializer=None, response_deserializer=None
        )
        self._metadata = tuple(endpoint.headers.items())
        self._compression = (
            grpc.Compression.Gzip
            if endpoint.compression == "gzip"
            else grpc.Compression.Deflate
            if endpoint.compression == "deflate"
            else grpc.Compression.NoCompression
        )
        self._rpc_error = grpc.RpcError
        self._endpoint = endpoint

    def send(self, body: bytes) -> Answer:
        """See `Sender`."""
        try:
            reply = self._call(
                body,
                timeout=self._endpoint.timeout_s,
                metadata=self._metadata,
                compression=self._compression,
            )
        except self._rpc_error as error:
            return self._answer(error)
        return _partial(reply)

    def close(self) -> None:
        """See `Sender`."""
        self._channel.close()

    def _answer(self, error: Any) -> Answer:
        code = error.code().name
        reason = f"{self._endpoint.shown}: {code}: {error.details()}"[:MAX_REASON_LENGTH]
        if code in self._REFUSED:
            return Answer("refused", reason)
        if code == "RESOURCE_EXHAUSTED" and "larger than max" in (error.details() or ""):
            return Answer("refused", reason)
        return Answer("retry", reason, _retry_info_s(error))


def _partial(reply: bytes) -> Answer:
    """Reads `partial_success`; an answer that is no such message is taken as it was meant: accepted."""
    if not reply:
        return ACCEPTED
    message = ExportTraceServiceResponse()
    try:
        message.ParseFromString(reply)
    except Exception:  # noqa: BLE001 - protobuf's error class differs by its backend; a JSON or empty-page 200 is still a 200
        return ACCEPTED
    partial = message.partial_success
    if partial.rejected_spans <= 0:
        return ACCEPTED
    return Answer(
        "accepted",
        partial.error_message[:MAX_REASON_LENGTH] or "rejected without a reason",
        rejected_spans=partial.rejected_spans,
    )


def _message(response: httpx.Response) -> str:
    """The readable part of an error body."""
    return " ".join(
        "".join(
            character if character.isprintable() else " "
            for character in response.content[:MAX_REASON_LENGTH].decode("utf-8", "replace")
        ).split()
    )


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds; its date form is not waited for."""
    if retry_after is None or not retry_after.strip().isdigit():
        return None
    return min(float(retry_after), 300.0)


def _retry_info_s(error: Any) -> float | None:
    """`RetryInfo.retry_delay` of a gRPC status in seconds, null without one."""
    for key, value in error.trailing_metadata() or ():
        if key == "google.rpc.retryinfo-bin":
            from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped] # ships no types

            info = RetryInfo()
            info.ParseFromString(value)
            return min(float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9), 300.0)
    return None


def _compressed(body: bytes, compression: str) -> bytes:
    if compression == "gzip":
        return gzip.compress(body, GZIP_LEVEL, mtime=0)
    return zlib.compress(body) if compression == "deflate" else body


def _tls_context(endpoint: OtlpEndpoint) -> ssl.SSLContext | bool:
    if not endpoint.is_tls:
        return True
    try:
        context = ssl.create_default_context(cafile=endpoint.certificate)
        if endpoint.client_certificate:
            context.load_cert_chain(endpoint.client_certificate, endpoint.client_key)
    except OSError as error:
        raise ExportError(f"OTLP certificates cannot be read: {error}") from error
    return context


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror}") from error
