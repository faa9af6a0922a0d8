"""The one exit to the engine. Whatever leaves the model server leaves here, so nothing that must hold for every call can be forgotten on a new path."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_gym.capture.current import current_call
from otel_gym.capture.routes import CAPTURED_PATHS, repaired_path
from otel_gym.counters import count
from otel_gym.dialects import DialectName, is_event_stream
from otel_gym.dialects.stream_usage import add_stream_usage
from otel_gym.sampling.outbound import (
    JsonBody,
    SamplingAccount,
    UnreadableBody,
    lay_pins,
    read_object,
    with_defaults,
)
from otel_gym.sampling.parameters import SPELLINGS
from otel_gym.sampling.profile import profile_of
from otel_gym.servers.chat_completions import (
    COMPLETIONS_TARGET,
    StreamedAnswer,
    WholeAnswer,
    completions_request,
)
from otel_gym.servers.chat_template import ChatRenderer
from otel_gym.servers.complaints import Complaints
from otel_gym.servers.connections import EngineResponse
from otel_gym.servers.headers import (
    Headers,
    request_headers,
    value_of,
    with_key,
    with_trace_context,
    without,
)
from otel_gym.servers.refusal import PIN_NOT_APPLICABLE, Refusal
from otel_gym.servers.transforms import BodyTransform, Chain, UsageKept
from otel_gym.servers.upstream import EngineRequest, Upstream
from otel_gym.settings import ModelServerSettings


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

    response: EngineResponse
    transform: BodyTransform | None = None


_OF_THE_BYTES: Final = (
    b"content-encoding",
    b"content-md5",
    b"digest",
    b"content-digest",
    b"repr-digest",
)
"""Request headers that describe a body's bytes, and would be false for others (RFC 9110 8.4, RFC 9530)."""


@dataclass(slots=True)
class _Outgoing:
    """A request on its way through the exit."""

    target: bytes
    headers: Headers
    body: bytes | AsyncIterable[bytes] | None
    as_chat: bool = False
    """Whether the answer is a completion that must go back as chat."""
    usage_added: bool = False
    """Whether we asked for a stream's usage that the caller did not ask for."""
    account: SamplingAccount | None = field(default=None)


class EngineExit:
    """Sends requests to the engine of `server`. Raises `SettingsError` where its URL, a sampling pin or the chat template is wrong.

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
        self.profile = profile_of(
            server.sampling_overrides,
            allow_unknown=server.sampling_allow_unknown,
            where=f"{server.name}.sampling_overrides",
        )
        self._defaults: dict[str, Any] = dict(server.extra_body or {})
        if server.model is not None:
            self._defaults.setdefault("model", server.model)
        self._renderer = (
            ChatRenderer(self.upstream, server.chat_template)
            if server.use_completions_api
            else None
        )
        self.complaints = Complaints()
        self._request_stream_usage = request_stream_usage
        self._paths = paths
        self._untouched = not (
            self.profile or self._defaults or self._renderer or request_stream_usage
        )

    def sampling_profile(self) -> dict[str, Any]:
        """The sampling profile that this server enforces, as `GET /otel-gym/sampling` answers it."""
        return {
            "server": self.server.name,
            "profile": self.profile.describe(),
            "pinned": self.profile.values(),
            "by_dialect": self.profile.by_dialect(),
            "extra_body": sorted(self.server.extra_body or ()),
            "use_completions_api": self._renderer is not None,
        }

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
        outgoing = _Outgoing(inbound.target, self._headers(inbound), inbound.body)
        dialect = self.dialect_of(inbound)
        if dialect is not None and isinstance(inbound.body, bytes) and not self._untouched:
            await self._shape(outgoing, dialect, inbound.body)
            self._account(outgoing)
        request = EngineRequest(inbound.method, outgoing.target, outgoing.headers, outgoing.body)
        response = await self.upstream.open(request)
        return Answer(response, _transform(outgoing, response))

    async def _shape(self, outgoing: _Outgoing, dialect: DialectName, raw: bytes) -> None:
        """Make of a generating request what the engine is to get. The pins come last."""
        encoding = b", ".join(v for k, v in outgoing.headers if k == b"content-encoding")
        try:
            read = read_object(raw, encoding.decode("latin-1"))
        except UnreadableBody as error:
            if self.profile or self._renderer:
                what = "the sampling pins of this server" if self.profile else "a chat template"
                raise Refusal(
                    PIN_NOT_APPLICABLE, f"{what} cannot be applied to this request's body: {error}"
                ) from None
            # The engine says what it thinks of it.
            return
        caller = read.value
        body = with_defaults(caller, self._defaults)
        sent_dialect = dialect
        if self._renderer is not None and dialect == "chat":
            rendered = await self._renderer.render(body, outgoing.headers)
            body = completions_request(body, rendered)
            sent_dialect = "completions"
            outgoing.target = COMPLETIONS_TARGET
            outgoing.as_chat = True
        if self._request_stream_usage and (asking := add_stream_usage(sent_dialect, body)):
            body = asking
            outgoing.usage_added = True
        body, outgoing.account = lay_pins(
            self.profile, sent_dialect, body, caller_dialect=dialect, caller=caller
        )
        if body is not caller:
            self._replace_body(outgoing, read, body)

    def _replace_body(self, outgoing: _Outgoing, read: JsonBody, body: Mapping[str, Any]) -> None:
        outgoing.body = read.written(body)
        outgoing.headers = without(outgoing.headers, *_OF_THE_BYTES)
        if outgoing.as_chat or outgoing.usage_added:
            # The answer has to be read on its way back.
            outgoing.headers = without(outgoing.headers, b"accept-encoding")
            outgoing.headers.append((b"accept-encoding", b"identity"))

    def _account(self, outgoing: _Outgoing) -> None:
        """Count what was replaced, and give the record its account where this server has a say in sampling."""
        account = outgoing.account
        if account is None or not (self.profile or self.server.extra_body or outgoing.as_chat):
            return
        for name in account.overridden or ():
            known = SPELLINGS.get(name)
            count("sampling.overrides", label=known.name if known else "other")
        call = current_call()
        if call is not None and isinstance(outgoing.body, bytes):
            call.sampling = account.record(hashlib.sha256(outgoing.body).hexdigest())

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


def _transform(outgoing: _Outgoing, response: EngineResponse) -> BodyTransform | None:
    """What is done to the answer's body; an encoded one cannot be read and goes through as it is."""
    encoding = value_of(response.headers, b"content-encoding")
    if encoding not in (None, b"", b"identity") or response.status_code != 200:
        return None
    content_type = (value_of(response.headers, b"content-type") or b"").decode("latin-1")
    streamed = is_event_stream(content_type)
    transforms: list[BodyTransform] = []
    if outgoing.as_chat:
        transforms.append(StreamedAnswer() if streamed else WholeAnswer())
    if outgoing.usage_added and streamed:
        transforms.append(UsageKept(current_call()))
    if not transforms:
        return None
    return transforms[0] if len(transforms) == 1 else Chain(transforms)
