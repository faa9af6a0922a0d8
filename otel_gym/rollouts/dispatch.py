"""One rollout asked of the agent: its `/run`, and everything that can come back instead of a result."""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httpcore
import httpx

from otel_gym.dialects.jsontext import loads_noting
from otel_gym.errors import OtelGymError, UsageProblem
from otel_gym.servers.agent import NAME_HEADER
from otel_gym.servers.answers import encode_json
from otel_gym.servers.connections import TRANSPORT_ERRORS, Connections, EngineResponse, Lost
from otel_gym.servers.headers import Headers, value_of
from otel_gym.servers.upstream import OneBody

MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024
CONNECT_TRIES: Final = 4
_CONNECT_PAUSE_S: Final = 0.25
_CONNECT_TIMEOUT_S: Final = 10.0
_KEEPALIVE_S: Final = 2.0
_HEADERS: Final = (
    (b"content-type", b"application/json"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"otel-gym"),
)
_NEVER_CONNECTED: Final = (httpcore.ConnectError, httpcore.ConnectTimeout)
_SHOWN: Final = 300


class RolloutFailure(OtelGymError):
    """An attempt without a result. `code` is one of

    agent_unreachable          no connection: the agent never got the request, so it is no attempt
    agent_connection_lost      the connection broke before the answer was whole
    agent_timeout              no answer in the time given
    agent_status               an HTTP status of 400 or above
    agent_response_too_large   more bytes than are taken
    agent_response_not_json    not JSON, or no JSON object
    """

    def __init__(self, code: str, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status

    @property
    def is_attempt(self) -> bool:
        """Whether the agent may have begun the rollout."""
        return self.code != "agent_unreachable"


class AgentClient:
    """The agent at `url` (with or without /run). Raises `UsageProblem` for what is no URL."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        parts = urlsplit(url)
        try:
            parsed = httpx.URL(url.rstrip("/").removesuffix("/run"))
        except httpx.InvalidURL:
            parsed = httpx.URL("")
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UsageProblem(f"agent {url!r}: must be a URL such as http://127.0.0.1:9000")
        self.url = str(parsed.copy_with(userinfo=b"")).rstrip("/")
        self._parts = parts
        self._max_response_bytes = max_response_bytes
        self._timeout_s = timeout_s
        self._run_url = httpcore.URL(
            scheme=parsed.raw_scheme,
            host=parsed.raw_host,
            port=parsed.port,
            target=parsed.raw_path.rstrip(b"/") + b"/run",
        )
        self._headers: Headers = [(b"host", parsed.netloc), *_HEADERS]
        if parsed.userinfo:
            user = unquote(parsed.userinfo.decode()).encode()
            self._headers.append((b"authorization", b"Basic " + b64encode(user)))
        self.agent_name: str | None = None
        """Name of the agent as it gave it last; null where it never did."""
        # Idle ones are given up before any server does (uvicorn: 5 s), so that no rollout is sent into a connection that is just being closed.
        # An agent is the collector's own, not a site on the net: proxies of the environment do not stand between them.
        self._connections = Connections(parsed, idle_s=_KEEPALIVE_S, proxy=None)

    async def check(self) -> None:
        """Raise `UsageProblem` where nothing listens at the agent's address."""
        port = self._parts.port or {"https": 443}.get(self._parts.scheme, 80)
        try:
            async with asyncio.timeout(10):
                _, writer = await asyncio.open_connection(self._parts.hostname, port)
            writer.close()
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UsageProblem(
                f"agent {self.url}: cannot be reached ({reason}); start it, or check --agent"
            ) from None

    async def run(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        """The agent's result of one rollout. Raises `RolloutFailure`."""
        content = encode_json(body)
        for attempt in range(1, CONNECT_TRIES + 1):
            try:
                return await self._run(content, headers)
            except TimeoutError as error:
                raise RolloutFailure("agent_timeout", "the agent did not answer in time") from error
            except Lost as lost:
                cause = lost.error
                if not (lost.was_never_seen or isinstance(cause, _NEVER_CONNECTED)):
                    raise _connection_lost(cause) from cause
                if attempt == CONNECT_TRIES:
                    raise RolloutFailure(
                        "agent_unreachable",
                        f"the agent at {self.url} cannot be reached: {cause or type(cause).__name__}",
                    ) from cause
                if not lost.was_never_seen:
                    # Spread out, so that the callers of an agent that was restarted do not all come at once.
                    await asyncio.sleep(_CONNECT_PAUSE_S * 2**attempt * random.uniform(0.5, 1.0))
            except TRANSPORT_ERRORS as error:
                raise _connection_lost(error) from error
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connections.aclose()

    async def _run(self, content: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        sent = [
            *self._headers,
            (b"content-length", str(len(content)).encode()),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ]
        request = httpcore.Request(
            b"POST",
            self._run_url,
            headers=sent,
            content=OneBody(content),
            extensions={"timeout": {"connect": _CONNECT_TIMEOUT_S}},
        )
        async with asyncio.timeout(self._timeout_s):
            response = await self._connections.send(request)
        try:
            name = value_of(response.headers, NAME_HEADER.encode()) or b""
            self.agent_name = unquote(name.decode("latin-1")) or self.agent_name
            data = await self._body(response)
        finally:
            await response.aclose()
        if response.status_code >= 400:
            raise RolloutFailure(
                "agent_status",
                f"the agent answered {response.status_code}: {_shown(data)}",
                status=response.status_code,
            )
        return _object(data)

    async def _body(self, response: EngineResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        coming = response.parts()
        while True:
            async with asyncio.timeout(self._timeout_s):
                part = await anext(coming, None)
            if part is None:
                return b"".join(parts)
            size += len(part)
            if size > self._max_response_bytes:
                raise RolloutFailure(
                    "agent_response_too_large",
                    f"the agent's answer is larger than {self._max_response_bytes} bytes",
                )
            parts.append(part)


def _connection_lost(error: Exception) -> RolloutFailure:
    return RolloutFailure(
        "agent_connection_lost", f"the agent's connection broke: {error or type(error).__name__}"
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        value, _ = loads_noting(data)
    except ValueError:
        raise RolloutFailure(
            "agent_response_not_json", f"the agent's answer is not JSON: {_shown(data)}"
        ) from None
    if not isinstance(value, dict):
        raise RolloutFailure(
            "agent_response_not_json",
            f"the agent's answer must be a JSON object, not a {type(value).__name__}",
        )
    return value


def _shown(data: bytes) -> str:
    """The beginning of an answer, in one line and without anything that could steer a terminal."""
    text = data[: 4 * _SHOWN].decode("utf-8", "replace")
    text = "".join(c if c.isprintable() else " " for c in text)
    text = " ".join(text.split()) or "an empty body"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
