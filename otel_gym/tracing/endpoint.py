"""Where spans go and how: the OTLP exporter variables, read once.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/. A variable of the signal (`OTEL_EXPORTER_OTLP_TRACES_*`) wins over the general one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from otel_gym.errors import UsageProblem

Protocol = Literal["http/protobuf", "grpc"]
Compression = Literal["none", "gzip", "deflate"]

_VARIABLE: Final = "OTEL_EXPORTER_OTLP_"
_DEFAULT_TIMEOUT_S: Final = 10.0
_GRPC_PORT: Final = 4317
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class OtlpEndpoint:
    """One OTLP receiver for spans."""

    url: str
    """Full URL for http/protobuf; for grpc scheme, host and port, or `unix:` and the path of a socket."""
    protocol: Protocol = "http/protobuf"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    compression: Compression = "none"
    timeout_s: float = _DEFAULT_TIMEOUT_S
    """Longest wait for one request's answer, in seconds."""
    certificate: str | None = None
    """File of the certificates that the server's is checked against; null takes the system's."""
    client_key: str | None = None
    client_certificate: str | None = None

    @property
    def shown(self) -> str:
        """The URL without what may be secret in it, for messages and files."""
        return without_secrets(self.url)

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return urlsplit(self.url).scheme == "https"

    @property
    def grpc_target(self) -> str:
        """The name by which gRPC knows the server: https://grpc.github.io/grpc/core/md_doc_naming.html."""
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return self.url
        host = parts.hostname or ""
        return f"{f'[{host}]' if ':' in host else host}:{parts.port or _GRPC_PORT}"


def traces_endpoint(
    configured: str | None, environment: Mapping[str, str] = os.environ, *, explicit: bool = False
) -> OtlpEndpoint | None:
    """The endpoint for spans, or null where `configured` is.

    `configured` is the URL that settings came to (variables included), or an `explicit` one from the command line. Over HTTP `/v1/traces` is appended
    to a base URL; the value of OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, and an explicit URL with a path, are taken as they stand. Raises `UsageProblem`.
    """
    if not configured:
        return None
    url = configured.strip()
    protocol = _choice(environment, "PROTOCOL", ("http/protobuf", "grpc"), "http/protobuf")
    parts = _parts(url)
    if explicit:
        as_it_stands = parts is not None and parts.path not in ("", "/")
    else:
        as_it_stands = url == environment.get(f"{_VARIABLE}TRACES_ENDPOINT", "").strip()
    is_socket = parts is not None and parts.scheme == "unix" and protocol == "grpc"
    if parts is None or not (is_socket or (parts.scheme in ("http", "https") and parts.hostname)):
        raise UsageProblem(
            f"OTLP endpoint {without_secrets(url)!r}: must be an http or https URL such as http://127.0.0.1:4318"
        )
    if protocol == "grpc":
        url = url if is_socket else f"{parts.scheme}://{parts.netloc}"
    elif not as_it_stands:
        url = parts._replace(path=parts.path.rstrip("/") + "/v1/traces").geturl()
    return OtlpEndpoint(
        url=url,
        protocol=protocol,  # type: ignore[arg-type] # one of the choices
        headers=parse_headers(_value(environment, "HEADERS")),
        compression=_choice(environment, "COMPRESSION", ("none", "gzip", "deflate"), "none"),  # type: ignore[arg-type] # one of the choices
        timeout_s=_timeout(environment),
        certificate=_value(environment, "CERTIFICATE") or None,
        client_key=_value(environment, "CLIENT_KEY") or None,
        client_certificate=_value(environment, "CLIENT_CERTIFICATE") or None,
    )


def without_secrets(url: str) -> str:
    """`url` without user name, password, query and fragment."""
    parts = _parts(url)
    if parts is None:
        return "..."
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def parse_headers(value: str) -> dict[str, str]:
    """Headers of `key=value,key=value`, both percent-decoded; names are lower case. Raises `UsageProblem`, which never shows a value."""
    headers: dict[str, str] = {}
    for member in value.split(","):
        key, separator, rest = member.partition("=")
        if not separator or not key.strip():
            continue
        name, content = unquote(key.strip()).lower(), unquote(rest.strip())
        if _HEADER_NAME.fullmatch(name) is None or _HEADER_VALUE.fullmatch(content) is None:
            raise UsageProblem(
                f"{_VARIABLE}HEADERS: {name[:80]!r} is no name of a header, or its value has characters that no header may have"
            )
        headers[name] = content
    return headers


def _parts(url: str) -> SplitResult | None:
    """The parts of a URL, null for what is none."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _value(environment: Mapping[str, str], name: str) -> str:
    return (
        environment.get(f"{_VARIABLE}TRACES_{name}") or environment.get(f"{_VARIABLE}{name}") or ""
    ).strip()


def _choice(
    environment: Mapping[str, str], name: str, choices: tuple[str, ...], default: str
) -> str:
    value = _value(environment, name).lower()
    if not value:
        return default
    if value not in choices:
        raise UsageProblem(f"{_VARIABLE}{name}={value}: must be one of {', '.join(choices)}")
    return value


def _timeout(environment: Mapping[str, str]) -> float:
    """OTEL_EXPORTER_OTLP_TIMEOUT in seconds, as the Python SDK reads it (the specification says milliseconds)."""
    value = _value(environment, "TIMEOUT")
    if not value:
        return _DEFAULT_TIMEOUT_S
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise UsageProblem(f"{_VARIABLE}TIMEOUT={value}: must be a number of seconds above 0")
    return seconds
