"""One OTLP request and its answer, over HTTP or gRPC.

The official exporters are not used for spans: they drop a whole batch on 400 and 413, ignore `partial_success`, cannot split by size, and block their
caller through their own retries. Here every answer is told to `delivery`, which decides. HTTP goes through httpx, gRPC through grpcio with the
service's method and raw bytes; each is loaded only where it is used. What the answers say: `otel_gym.tracing.answers`.
"""

from __future__ import annotations

import gzip
import logging
import ssl
import time
import zlib
from typing import TYPE_CHECKING, Any, Final, Protocol

from otel_gym.errors import ExportError
from otel_gym.tracing.answers import (
    Answer,
    accepted_or_partial,
    grpc_answer,
    http_answer,
    no_answer,
)
from otel_gym.tracing.endpoint import OtlpEndpoint

if TYPE_CHECKING:
    import httpx

GRPC_METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
GZIP_LEVEL: Final = 1
"""Half the CPU of the default level for batches of like spans, which shrink to a few per cent anyway."""
MAX_ANSWER_BYTES: Final = 64 * 1024
"""Most that is read of an answer."""
_GRPC_OPTIONS: Final = (
    # Its own default lets a backend that has come back wait for two minutes.
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 10_000),
)


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

        _unlogged.add(str(httpx.URL(endpoint.url)))
        logging.getLogger("httpx").addFilter(_is_no_export)
        self._endpoint = endpoint
        self._headers = {
            "user-agent": "OTel-OTLP-Exporter-otel-gym",
            **endpoint.headers,
            "content-type": "application/x-protobuf",
            "accept-encoding": "identity",
        }
        if endpoint.compression != "none":
            self._headers["content-encoding"] = endpoint.compression
        self._client = httpx.Client(
            timeout=endpoint.timeout_s, verify=_tls_context(endpoint), follow_redirects=False
        )
        self._request_error = httpx.RequestError
        self._not_connected = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)

    def send(self, body: bytes) -> Answer:
        """See `Sender`."""
        try:
            with self._client.stream(
                "POST",
                self._endpoint.url,
                content=_compressed(body, self._endpoint.compression),
                headers=self._headers,
            ) as response:
                content = self._read(response)
        except self._request_error as error:
            return no_answer(
                self._endpoint.shown, error, is_connected=not isinstance(error, self._not_connected)
            )
        return http_answer(self._endpoint.shown, response.status_code, response.headers, content)

    def close(self) -> None:
        """See `Sender`."""
        self._client.close()

    def _read(self, response: httpx.Response) -> bytes:
        """The body, or its beginning where it is large or dribbles."""
        deadline = time.monotonic() + self._endpoint.timeout_s
        content = b""
        for piece in response.iter_raw():
            content += piece
            if len(content) >= MAX_ANSWER_BYTES or time.monotonic() > deadline:
                break
        return content[:MAX_ANSWER_BYTES]


class GrpcSender:
    """OTLP/gRPC: https://opentelemetry.io/docs/specs/otlp/#otlpgrpc."""

    def __init__(self, endpoint: OtlpEndpoint) -> None:
        import grpc  # type: ignore[import-untyped] # ships no types

        target = endpoint.grpc_target
        if endpoint.is_tls:
            credentials = grpc.ssl_channel_credentials(
                _read(endpoint.certificate),
                _read(endpoint.client_key),
                _read(endpoint.client_certificate),
            )
            self._channel: Any = grpc.secure_channel(target, credentials, _GRPC_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(target, _GRPC_OPTIONS)
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
            return grpc_answer(self._endpoint.shown, error)
        return accepted_or_partial(reply)

    def close(self) -> None:
        """See `Sender`."""
        self._channel.close()


_unlogged: Final[set[str]] = set()


def _is_no_export(record: logging.LogRecord) -> bool:
    """Keeps httpx from logging requests to our backends, each with its URL as it stands, secrets included."""
    return not isinstance(record.args, tuple) or _unlogged.isdisjoint(map(str, record.args))


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
