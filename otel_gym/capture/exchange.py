"""One model call in flight: what passes through, what is held back, and when its record is closed.

Bytes go out as they come in, at once and unchanged, except the last ones: the message that completes a JSON body, or a stream's terminal event, waits until the
record is durable. So a client that has seen the end of an answer can rely on its record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from time import perf_counter_ns
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from otel_gym.capture import current
from otel_gym.capture.call_ids import new_call_id
from otel_gym.capture.capturing import Capture, wall_and_monotonic_ns
from otel_gym.capture.client import retry_count_of, session_of
from otel_gym.capture.current import CurrentCall
from otel_gym.capture.facts import Ending, ExchangeFacts
from otel_gym.capture.location import REDIRECTS, PrefixedLocation
from otel_gym.capture.resend import digest_of
from otel_gym.capture.tape import BodyTape
from otel_gym.correlation.prefix import rollout_path_prefix
from otel_gym.counters import count
from otel_gym.dialects import DialectName, TerminalScanner, is_event_stream
from otel_gym.dialects.incremental import IncrementalDecoder, incremental_decoder

log: Final = logging.getLogger("otel_gym.capture")

_UNSEEN_EXTENSIONS: Final = ("http.response.pathsend", "http.response.zerocopysend")
"""ASGI extensions that would send a body past us."""


_BODILESS: Final = frozenset({204, 205, 304})
"""Statuses whose answer ends with its headers (RFC 9112 6.3)."""


class Exchange:
    """The state of one captured request; one object per request."""

    __slots__ = (
        "_capture",
        "_claim",
        "_closed",
        "_current",
        "_decoder",
        "_disconnected",
        "_end_ns",
        "_facts",
        "_first_chunk_ns",
        "_grace",
        "_grace_close",
        "_headers",
        "_held",
        "_holding",
        "_receive",
        "_remaining",
        "_scanner",
        "_scope",
        "_send",
        "_started_ns",
        "_started_wall_ns",
        "_submitted",
        "_whole",
    )

    def __init__(
        self,
        capture: Capture,
        dialect: DialectName,
        rollout_id: str,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """`rollout_id` is valid."""
        self._capture = capture
        self._scope = _seen_scope(scope)
        self._receive = receive
        self._send = send
        call_id = new_call_id()
        self._claim = capture.writer.begin(rollout_id, call_id)
        self._headers = headers = capture.headers.pick(scope["headers"])
        trace = capture.trace_of(
            rollout_id, call_id, headers.one("traceparent"), headers.one("tracestate")
        )
        self._current = CurrentCall(
            rollout_id=rollout_id,
            model_call_id=call_id,
            dialect=dialect,
            trace_id=trace["trace_id"],
            span_id=trace["span_id"],
            path=scope["path"],
            tracestate=headers.one("tracestate") if trace["mode"] == "parent" else None,
        )
        limit = capture.settings.capture_max_body_bytes
        self._facts = ExchangeFacts(
            model_call_id=call_id,
            rollout_id=rollout_id,
            dialect=dialect,
            request=BodyTape(limit),
            response=BodyTape(limit),
            model_ref=capture.model_ref,
            trace=trace,
            engine=capture.engine,
            outcome=self._current.outcome,
            notes=self._current.notes,
            generation=self._claim.generation,
        )
        self._remaining: int | None = None
        self._scanner: TerminalScanner | None = None
        self._decoder: IncrementalDecoder | None = None
        self._first_chunk_ns: int | None = None
        self._end_ns: int | None = None
        self._whole = False
        self._disconnected = False
        self._held: deque[Message] = deque()
        self._holding = False
        self._submitted = False
        self._closed = False
        self._started_wall_ns = 0
        self._started_ns = 0
        self._grace: asyncio.TimerHandle | None = None
        self._grace_close: asyncio.Task[None] | None = None

    async def run(self, app: ASGIApp) -> None:
        """Serve the request; whatever `app` does, it does to the client too, and the record says so."""
        self._started_wall_ns, self._started_ns = wall_and_monotonic_ns()
        token = current._call.set(self._current)
        try:
            await app(self._scope, self.receive, self.send)
        except asyncio.CancelledError as error:
            # The record is in the writer's hands at once; a second cancellation only ends the waiting.
            with contextlib.suppress(asyncio.CancelledError):
                await self._finish("cancelled", error)
            raise
        except Exception as error:
            await self._finish("exception", error)
            raise
        else:
            await self._finish("returned", None)
        finally:
            current._call.reset(token)

    async def receive(self) -> Message:
        """What the application reads of the request, recorded as it goes by."""
        message = await self._receive()
        if message["type"] == "http.request":
            body = message.get("body", b"")
            if body:
                self._facts.request.append(body)
        elif message["type"] == "http.disconnect" and not self._submitted:
            self._disconnected = True
        return message

    async def send(self, message: Message) -> None:
        """What the application sends: forwarded at once, or held where it completes the answer."""
        kind = message["type"]
        if kind == "http.response.body":
            if self._closed:
                if message.get("body"):
                    count("calls.trailing_bytes")
                await self._send(message)
                return
            self._on_body(message)
            if not self._holding:
                await self._send(message)
                return
            self._held.append(message)
            if self._whole:
                await self._close("returned", None)
            elif self._grace is None and self._grace_close is None:
                delay = self._capture.settings.capture_terminal_grace
                self._grace = asyncio.get_running_loop().call_later(delay, self._grace_over)
            return
        if kind == "http.response.start":
            message = self._on_start(message)
        if self._holding and not self._closed:
            self._held.append(message)
        else:
            await self._send(message)

    def _on_start(self, message: Message) -> Message:
        facts = self._facts
        facts.status_code = status = message["status"]
        for name, value in message.get("headers", ()):
            lowered = name.lower()
            if lowered == b"content-type":
                facts.response_content_type = value.decode("latin-1")
            elif lowered == b"content-encoding":
                facts.response_encoding = value.decode("latin-1").strip().lower()
            elif lowered == b"content-length" and value.isdigit():
                self._remaining = int(value)
        if is_event_stream(facts.response_content_type):
            self._scanner = TerminalScanner(facts.dialect)
            if facts.response_encoding not in ("", "identity"):
                self._decoder = incremental_decoder(facts.response_encoding)
        if self._remaining == 0 or status in _BODILESS:
            # The client is done with these headers.
            self._end()
        if status in REDIRECTS:
            return PrefixedLocation(rollout_path_prefix(facts.rollout_id), self._scope)(message)
        return message

    def _on_body(self, message: Message) -> None:
        """Note a part of the body, and whether this message or an earlier one must wait for the record."""
        body: bytes = message.get("body", b"")
        if body:
            facts = self._facts
            facts.chunks += 1
            facts.response.append(body)
            if self._first_chunk_ns is None and not _is_keep_alive(body):
                self._first_chunk_ns = perf_counter_ns()
            if self._scanner is not None and facts.terminal is None:
                seen = self._decoder.feed(body) if self._decoder is not None else body
                facts.terminal = self._scanner.feed(seen)
                if facts.terminal is not None:
                    self._end()
            if self._remaining is not None:
                self._remaining -= len(body)
                if self._remaining <= 0:
                    self._whole = True
        if not message.get("more_body", False):
            self._whole = True
        if self._whole and self._end_ns is None:
            self._end()

    def _end(self) -> None:
        self._holding = True
        if self._end_ns is None:
            self._end_ns = perf_counter_ns()

    def _grace_over(self) -> None:
        """The stream has had its terminal event and still goes on: close the record without waiting longer."""
        self._grace = None
        self._grace_close = asyncio.ensure_future(self._close("returned", None))

    async def _finish(self, ending: Ending, error: BaseException | None) -> None:
        """The application is done. Close the record if nothing closed it before."""
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        if self._grace_close is not None:
            await asyncio.shield(self._grace_close)
            return
        if self._submitted:
            return
        if ending == "returned" and self._disconnected and not self._whole:
            ending = "disconnected"
        await self._close(ending, error)

    async def _close(self, ending: Ending, error: BaseException | None) -> None:
        """Hand the record over, wait until it is durable (bounded), then let go of what was held."""
        if self._submitted:
            return
        self._submitted = True
        try:
            self._complete_facts(ending, error)
            await self._capture.writer.write(self._facts, self._claim)
        except Exception:
            # A fault of capture is never a fault of the call.
            count("capture.failures")
            log.exception(
                "model call %s of rollout %s could not be recorded",
                self._facts.model_call_id,
                self._facts.rollout_id,
            )
        while self._held:
            await self._send(self._held.popleft())
        self._closed = True

    def _complete_facts(self, ending: Ending, error: BaseException | None) -> None:
        """Add what is known only at the end."""
        facts, headers = self._facts, self._headers
        if self._scanner is not None and facts.terminal is None:
            facts.terminal = self._scanner.finish()
        if facts.terminal is not None and ending in ("disconnected", "cancelled", "exception"):
            # The caller had the terminal event or will have it with what is held; how it hung up says nothing about the answer.
            ending, error = "returned", None
        end_ns = self._end_ns if self._end_ns is not None else perf_counter_ns()
        latency_ns = max(end_ns - self._started_ns, 0)
        facts.started_at = self._started_wall_ns / 1e9
        facts.completed_at = (self._started_wall_ns + latency_ns) / 1e9
        facts.latency_ms = latency_ns / 1e6
        if self._first_chunk_ns is not None:
            facts.latency_ttft_ms = (self._first_chunk_ns - self._started_ns) / 1e6
        facts.ending = ending
        facts.exception = error
        facts.request_encoding = (headers.one("content-encoding") or "").lower()
        facts.client_session_id = session_of(headers)
        facts.client = self._capture.headers.client(headers)
        facts.sampling = self._current.sampling
        facts.resend = self._resend(end_ns)

    def _resend(self, end_ns: int) -> dict[str, Any] | None:
        """Whether this call repeats a failed one; and if it failed itself, remember it."""
        facts, resends = self._facts, self._capture.resends
        status = facts.status_code
        failed = facts.ending != "returned" or status is None or status >= 400
        failed = failed or (self._scanner is not None and facts.terminal != "complete")
        header_count = retry_count_of(self._headers)
        if not failed and not header_count and not resends.watching:
            return None
        rollout_id, dialect = facts.rollout_id, facts.dialect
        digest = digest_of(facts.request.chunks()) if failed or resends.watching else None
        resend = resends.resend(rollout_id, dialect, digest, self._started_ns, header_count)
        if digest is not None:
            if failed:
                repeats = resend["count"] if resend else 0
                resends.failed(rollout_id, dialect, digest, facts.model_call_id, end_ns, repeats)
            else:
                resends.answered(rollout_id, dialect, digest)
        return resend


def _is_keep_alive(body: bytes) -> bool:
    """Whether a chunk is nothing but comments and blank lines of an event stream."""
    return body[:1] == b":" and all(line[:1] in (b":", b"") for line in body.splitlines())


def _seen_scope(scope: Scope) -> Scope:
    """The scope without the extensions that would send a body past us."""
    extensions = scope.get("extensions")
    if not extensions or not any(name in extensions for name in _UNSEEN_EXTENSIONS):
        return scope
    kept = {name: value for name, value in extensions.items() if name not in _UNSEEN_EXTENSIONS}
    return {**scope, "extensions": kept}
