"""One request on its way to the engine and its answer on the way back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Final, TypeVar
from urllib.parse import quote

from starlette.types import Receive, Scope, Send

from otel_gym.capture.current import current_call
from otel_gym.counters import count
from otel_gym.servers.connections import TRANSPORT_ERRORS
from otel_gym.servers.headers import end_to_end, value_of, without
from otel_gym.servers.outbound import Answer, EngineExit, Inbound
from otel_gym.servers.refusal import (
    ENGINE_UNREACHABLE,
    PIN_NOT_APPLICABLE,
    EngineConnectionLost,
    Refusal,
    error_body,
    send_json,
)

WHOLE_UPLOAD_MAX_BYTES: Final = 1024 * 1024
"""A larger upload to a path that is no model call is passed on while it arrives."""

LOST: Final = "engine_lost"

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed its connection before its request was complete."""


class Forwarding:
    """The state of one forwarded request; one object per request."""

    def __init__(self, exit_: EngineExit, scope: Scope, receive: Receive, send: Send) -> None:
        self._exit = exit_
        self._scope = scope
        self._receive = receive
        self._send = send
        self._path = _below_mount(scope, scope["path"])
        self._task: asyncio.Task[object] | None = None
        self._cancellations = 0
        self._waiting_for_engine = False
        self._client_gone = False
        self._watcher: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Forward the request and relay the answer. Raises `EngineConnectionLost` where the engine is lost in the middle of it."""
        self._task = asyncio.current_task()
        self._cancellations = self._task.cancelling() if self._task else 0
        try:
            inbound = await self._inbound()
            answer = await self._interruptible(self._exit.open(inbound))
            self._exit.complaints.well(ENGINE_UNREACHABLE.code)
            try:
                self._note_answer(answer.response.status_code)
                await self._relay(answer)
                self._exit.complaints.well(LOST)
            finally:
                await answer.response.aclose()
        except Refusal as refusal:
            await self._refuse(refusal)
        except ClientGone:
            count("engine.cancelled")
        except asyncio.CancelledError:
            if not self._is_our_cancellation():
                raise
            count("engine.cancelled")
        finally:
            if self._watcher is not None:
                self._watcher.cancel()

    async def _inbound(self) -> Inbound:
        """The request, its body read whole where it is a model call or small."""
        scope = self._scope
        inbound = Inbound(
            method=scope["method"],
            path=self._path,
            target=_target(scope),
            headers=scope["headers"],
        )
        length = value_of(scope["headers"], b"content-length")
        chunked = value_of(scope["headers"], b"transfer-encoding") is not None
        if length is None and not chunked:
            await self._whole_body()
        elif self._exit.needs_body(inbound) or (
            length is not None and int(length) <= WHOLE_UPLOAD_MAX_BYTES
        ):
            inbound.body = await self._whole_body()
        else:
            inbound.body = self._body_parts()
            if length is not None:
                inbound.streamed_length = int(length)
        return inbound

    async def _whole_body(self) -> bytes:
        return b"".join([part async for part in self._body_parts()])

    async def _body_parts(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._client_gone = True
                raise ClientGone
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body", False):
                break
        self._watcher = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        """Cancel the engine call as soon as the client goes away."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                break
        self._client_gone = True
        if self._waiting_for_engine and self._task is not None:
            self._task.cancel()

    async def _interruptible(self, awaitable: Awaitable[T]) -> T:
        """Wait for the engine; only here may a disconnect cancel us, never while something is being sent."""
        self._waiting_for_engine = True
        try:
            return await awaitable
        finally:
            self._waiting_for_engine = False

    def _is_our_cancellation(self) -> bool:
        """Whether a cancellation came from `_watch` alone; it is then taken back (as `asyncio.timeout` does)."""
        if not self._client_gone or self._task is None:
            return False
        return self._task.uncancel() <= self._cancellations

    async def _relay(self, answer: Answer) -> None:
        """Pass the answer on: each part at once; the message that completes a body of known length says so."""
        response, transform = answer.response, answer.transform
        headers = end_to_end(response.headers)
        remaining: int | None = None
        if transform is not None:
            headers = without(headers, b"content-length")
        elif self._scope["method"] != "HEAD":
            length = value_of(headers, b"content-length")
            remaining = int(length) if length is not None and length.isdigit() else None
        await self._send(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": headers,
            }
        )
        ended = False
        parts = response.parts()
        while not ended and not self._client_gone:
            part = await self._next(parts)
            if part is None:
                break
            if transform is not None:
                part = transform.feed(part)
            if not part:
                continue
            if remaining is not None:
                remaining -= len(part)
                ended = remaining <= 0
            await self._send({"type": "http.response.body", "body": part, "more_body": not ended})
        if ended:
            # Nothing is left but the end of the message: read, it frees the connection for the next call.
            with suppress(*TRANSPORT_ERRORS):
                await self._interruptible(anext(parts, None))
        elif self._client_gone:
            count("engine.cancelled")
        else:
            rest = transform.finish() if transform is not None else b""
            await self._send({"type": "http.response.body", "body": rest})

    async def _next(self, parts: AsyncIterator[bytes]) -> bytes | None:
        """The engine's next chunk, null at the end of its answer."""
        try:
            return await self._interruptible(anext(parts, None))
        except TRANSPORT_ERRORS as error:
            count("engine.lost")
            self._note_lost()
            lost = EngineConnectionLost(
                f"the engine at {self._exit.upstream.display_url} broke off its answer: {str(error) or type(error).__name__}"
            )
            self._exit.complaints.say(LOST, lost)
            raise lost from error

    def _note_answer(self, status: int) -> None:
        call = current_call()
        if call is not None:
            call.outcome.update(
                upstream_attempted=True, response_source="upstream", upstream_status_code=status
            )

    def _note_lost(self) -> None:
        call = current_call()
        if call is not None:
            call.outcome["local_response_reason"] = LOST

    async def _refuse(self, refusal: Refusal) -> None:
        """Answer the call ourselves, in the caller's dialect."""
        reason = refusal.reason
        if reason is ENGINE_UNREACHABLE:
            count("engine.unreachable")
        elif reason is PIN_NOT_APPLICABLE:
            count("sampling.refused")
        self._exit.complaints.say(reason.code, refusal)
        call = current_call()
        if call is not None:
            call.outcome.update(
                upstream_attempted=reason.status >= 500,
                response_source="local",
                upstream_status_code=None,
                local_response_reason=reason.code,
            )
        if not self._client_gone:
            await send_json(self._send, reason.status, error_body(self._path, reason, str(refusal)))


def _below_mount(scope: Scope, path: str) -> str:
    root: str = scope.get("root_path", "") or ""
    return path[len(root) :] if root and path.startswith(root + "/") else path


def _target(scope: Scope) -> bytes:
    """Path and query as the caller wrote them, without the path of a mount."""
    raw: bytes | None = scope.get("raw_path")
    if raw is None:
        raw = quote(scope["path"], safe="/:@!$&'()*+,;=~").encode()
    raw = raw.partition(b"?")[0]
    mount = (scope.get("root_path", "") or "").encode()
    if mount and raw.startswith(mount + b"/"):
        raw = raw[len(mount) :]
    query: bytes = scope.get("query_string", b"")
    return raw + b"?" + query if query else raw
