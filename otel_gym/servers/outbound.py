"""The one exit to the engine. Whatever leaves the model server leaves here, so nothing that must hold for every call can be forgotten on a new path."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import httpx
import orjson

from otel_gym.capture.current import current_call
from otel_gym.capture.routes import CAPTURED_PATHS, repaired_path
from otel_gym.dialects.names import DialectName
from otel_gym.servers.headers import Headers, request_headers, with_key, with_trace_context
from otel_gym.servers.upstream import EngineRequest, Upstream
from otel_gym.settings import ModelServerSettings


class BodyTransform(Protocol):
    """Changes an answer's body on its way back: `feed` each part, then `finish` once; both return bytes to send, perhaps none."""

    def feed(self, part: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


@dataclass(slots=True)
class Inbound:
    """A caller's request."""

    method: str
    path: str
    """Decoded path below any mount."""
    target: bytes
    """Path and query as they arrived."""
    headers: Iterable[tuple[bytes, bytes]]
    body: bytes | AsyncIterable[bytes] | None = None
    streamed_length: int | None = None
    """Content-Length of a body that is passed on while it arrives, null where it is chunked."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The engine's answer, its body unread, and what is done to that body (null: nothing)."""

    response: httpx.Response
    transform: BodyTransform | None = None


class EngineExit:
    """Sends requests to the engine of `server`. Raises `SettingsError` where its URL or a sampling pin is wrong.

    `paths` says which paths generate, and in which dialect; a path that is not in it is passed on byte for byte.
    """

    def __init__(
        self,
        server: ModelServerSettings,
        *,
        request_stream_usage: bool = False,
        paths: Mapping[str, DialectName] = CAPTURED_PATHS,
    ) -> None:
        assert server.engine_url is not None
        self.server = server
        self.upstream = Upstream(server.engine_url)
        self._request_stream_usage = request_stream_usage
        self._paths = paths

    def profile_json(self) -> bytes:
        """The sampling profile that this server enforces, for `GET /otel-gym/sampling`."""
        return orjson.dumps({"server": self.server.name})

    def needs_body(self, inbound: Inbound) -> bool:
        """Whether the request must be read whole before it goes out."""
        return self.dialect_of(inbound) is not None

    def dialect_of(self, inbound: Inbound) -> DialectName | None:
        """The dialect of a generating request, null for any other; every spelling of a path counts."""
        if inbound.method != "POST":
            return None
        return self._paths.get(inbound.path) or self._paths.get(repaired_path(inbound.path))

    async def open(self, inbound: Inbound) -> Answer:
        """Send a request; returns when the answer's headers are there. Raises `Refusal` where there will be none from the engine."""
        request = EngineRequest(
            inbound.method, inbound.target, self._headers(inbound), inbound.body
        )
        return Answer(await self.upstream.open(request))

    def _headers(self, inbound: Inbound) -> Headers:
        headers = request_headers(inbound.headers)
        if inbound.streamed_length is not None:
            headers.append((b"content-length", str(inbound.streamed_length).encode()))
        if self.server.api_key:
            headers = with_key(headers, self.server.api_key, self.upstream.engine_url)
        call = current_call()
        if call is not None:
            headers = with_trace_context(headers, call.traceparent, call.tracestate)
        return headers

    async def aclose(self) -> None:
        """Close the connections to the engine. Safe to call again."""
        await self.upstream.aclose()
