"""From the facts of a finished exchange to the raw line: what the bytes say, and the bytes themselves."""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass, field
from typing import Any

from otel_gym.capture.categories import error_category
from otel_gym.capture.facts import ExchangeFacts
from otel_gym.capture.tape import BodyTape
from otel_gym.counters import count
from otel_gym.dialects import (
    DialectName,
    EncodingError,
    StreamReading,
    Terminal,
    decode_body,
    is_event_stream,
    looks_like_event_stream,
    read_stream,
)
from otel_gym.dialects.encoding import encodings
from otel_gym.dialects.jsontext import loads_noting, text_or_base64
from otel_gym.dialects.stream_usage import usage_only_payload

logger = logging.getLogger(__name__)

OUTCOME_KEYS = (
    "upstream_attempted",
    "response_source",
    "upstream_status_code",
    "local_response_reason",
)
"""What an adapter says of its own part; absent where none did."""

_logged: set[tuple[str, type[Exception]]] = set()

SCHEMA = 1
"""Version of the raw line that this code writes."""


@dataclass(slots=True)
class Body:
    """A body as far as it could be understood."""

    data: bytes
    """The kept bytes, decoded where `encoding` is empty."""
    encoding: str = ""
    """The content encodings that are still on `data`, because it could not be decoded."""
    readable: bytes = b""
    """The decoded bytes, or as many of them as could be decoded."""
    value: dict[str, Any] | None = None
    """The JSON object, null where it is none."""
    exact: bool = True
    """Whether writing `value` again as JSON gives the same values."""


@dataclass(slots=True)
class Answer:
    """A response body and its reading."""

    body: Body
    streamed: bool = False
    reading: StreamReading | None = None
    response: dict[str, Any] | None = None
    terminal: Terminal | None = None
    unmerged: list[Any] = field(default_factory=list)


def build_raw_record(facts: ExchangeFacts) -> dict[str, Any]:
    """The raw line of a finished exchange, keys in the reference order, then ours.

    Never raises, whatever the bytes: what cannot be understood is kept as text or base64.
    """
    request = read_body(facts.request.data(), facts.request_encoding, facts.request)
    answer = read_answer(facts)
    status = facts.status_code if facts.status_code is not None else _status_of(facts.exception)
    raw: dict[str, Any] = {
        "model_call_id": facts.model_call_id,
        "dialect": facts.dialect,
        "model_ref": facts.model_ref,
        "started_at": facts.started_at,
        "completed_at": facts.completed_at,
        "latency_ms": round(facts.latency_ms, 2),
        "latency_ttft_ms": None
        if facts.latency_ttft_ms is None
        else round(facts.latency_ttft_ms, 2),
        "status_code": status,
        "error_category": error_category(
            ending=facts.ending,
            exception=facts.exception,
            adapter_reason=facts.outcome.get("local_response_reason"),
            status=status,
            streamed=answer.streamed,
            terminal=answer.terminal,
            response_status=(answer.response or {}).get("status"),
            understood=answer.response is not None or not answer.body.data or facts.response.cut,
        ),
        "request": request.value,
        "response": answer.response,
    }
    if facts.client_session_id is not None:
        raw["client_session_id"] = facts.client_session_id
    if facts.outcome:
        raw.update({key: facts.outcome[key] for key in OUTCOME_KEYS if key in facts.outcome})
    if request.data and (request.value is None or not request.exact):
        _keep_bytes(raw, "request", request)
    if answer.body.data and (answer.streamed or answer.response is None or not answer.body.exact):
        _keep_bytes(raw, "response", answer.body)
    raw["schema"] = SCHEMA
    raw["rollout_id"] = facts.rollout_id
    if facts.trace is not None:
        raw["trace"] = facts.trace
    if facts.engine is not None:
        raw["engine"] = facts.engine
    if facts.client is not None:
        raw["client"] = facts.client
    if answer.streamed:
        raw["stream"] = {"chunks": facts.chunks, "terminal": answer.terminal or "none"}
    if facts.sampling is not None:
        raw["sampling"] = facts.sampling
    if facts.resend is not None:
        raw["resend"] = facts.resend
    if facts.request.cut or facts.response.cut:
        count("records.oversized")
        for name, tape in (("request_cut", facts.request), ("response_cut", facts.response)):
            if tape.cut:
                raw[name] = {
                    "size_bytes": tape.size_bytes,
                    "sha256": tape.digest,
                    "head_bytes": tape.head_bytes,
                    "tail_bytes": tape.tail_bytes,
                }
    if answer.unmerged:
        count("stream.unmerged", len(answer.unmerged))
        raw["unmerged"] = answer.unmerged
    if facts.ending == "exception" and facts.exception is not None:
        raw["exception"] = {"type": _type_name(facts.exception), "message": _text(facts.exception)}
    for key, value in facts.notes.items():
        raw.setdefault(key, value)
    return raw


def read_body(
    data: bytes,
    encoding: str,
    tape: BodyTape | None = None,
    max_bytes: int = 0,
    *,
    streamed: bool = False,
) -> Body:
    """Decode a body and read it as a JSON object, as far as either is possible.

    A body that is `streamed`, and looks it, is not tried as JSON.
    """
    body = Body(data, readable=data)
    if encoding and data and encodings(encoding):
        try:
            body.data = body.readable = decode_body(
                encoding, data, tape.max_bytes if tape is not None else max_bytes
            )
        except EncodingError as error:
            body.encoding = encoding
            body.readable = error.partial
            return body
    if streamed and looks_like_event_stream(body.data):
        return body
    if data and not (tape is not None and tape.cut):
        try:
            value, exact = loads_noting(body.data)
        except ValueError:
            return body
        if isinstance(value, dict):
            body.value, body.exact = value, exact
    return body


def read_answer(facts: ExchangeFacts) -> Answer:
    """The response of an exchange: decoded, and read as a stream or as JSON."""
    data = facts.response.data() or _body_of(facts.exception)
    streamed = is_event_stream(facts.response_content_type)
    answer = Answer(
        read_body(data, facts.response_encoding, facts.response, streamed=streamed), streamed
    )
    if not streamed and answer.body.value is None:
        answer.streamed = streamed = looks_like_event_stream(answer.body.readable)
    if not streamed:
        answer.response = answer.body.value
        return answer
    answer.terminal = facts.terminal
    if answer.body.value is not None and not looks_like_event_stream(answer.body.data):
        answer.response = answer.body.value
        return answer
    reading = safe_read_stream(facts.dialect, [answer.body.readable])
    answer.reading = reading
    answer.response = reading.response
    answer.unmerged = reading.unmerged
    if answer.terminal is None:
        answer.terminal = reading.terminal
    fill_usage(answer.response, facts.notes.get("stream_usage_chunk"))
    return answer


def fill_usage(response: dict[str, Any] | None, chunk: object) -> None:
    """Put the usage of a chunk that was kept from the caller into the response, where it has none."""
    if response is None or not isinstance(chunk, str) or response.get("usage") is not None:
        return
    payload = usage_only_payload(chunk.encode("utf-8"))
    if payload is not None:
        response["usage"] = payload["usage"]


def safe_read_stream(dialect: DialectName, chunks: list[bytes]) -> StreamReading:
    """`read_stream` that gives an empty reading instead of failing: the bytes are kept anyway."""
    try:
        return read_stream(dialect, chunks)
    except Exception as error:
        count("capture.failures")
        if (dialect, type(error)) not in _logged:
            _logged.add((dialect, type(error)))
            logger.warning(
                "a %s stream could not be put together; its bytes are kept", dialect, exc_info=error
            )
        return StreamReading(None, None, None, [{"reading_failed": repr(error)}])


def _keep_bytes(raw: dict[str, Any], name: str, body: Body) -> None:
    """Keep the bytes of a body: as text where they are UTF-8, else byte-exact as base64."""
    if body.encoding:
        raw[f"{name}_raw_b64"] = base64.b64encode(body.data).decode("ascii")
        raw[f"{name}_raw_encoding"] = body.encoding
        return
    text, encoded = text_or_base64(body.data)
    if text is not None:
        raw[f"{name}_raw"] = text
    else:
        raw[f"{name}_raw_b64"] = encoded


def _status_of(exception: BaseException | None) -> int | None:
    """The HTTP status that an exception carries."""
    response = getattr(exception, "response", None)
    for value in (
        getattr(exception, "status", None),
        getattr(exception, "status_code", None),
        getattr(response, "status_code", None),
        getattr(response, "status", None),
    ):
        if type(value) is int and 100 <= value <= 599:
            return value
    return None


def _body_of(exception: BaseException | None) -> bytes:
    """The response body that an exception carries, where nothing was sent to the client."""
    if exception is None:
        return b""
    response = getattr(exception, "response", None)
    for holder, name in (
        (exception, "response_content"),
        (response, "content"),
        (response, "text"),
    ):
        try:
            value = getattr(holder, name, None)
        except Exception:  # noqa: BLE001, S112 - httpx raises here where the body was never read
            continue
        if isinstance(value, bytes) and value:
            return value
        if isinstance(value, str) and value:
            return value.encode("utf-8", "surrogatepass")
    return b""


def _type_name(exception: BaseException) -> str:
    return f"{type(exception).__module__}.{type(exception).__qualname__}"


def _text(exception: BaseException) -> str:
    try:
        return str(exception)[:2000]
    except Exception:  # noqa: BLE001 - a broken __str__ is no reason to lose the line
        return ""


__all__ = ["SCHEMA", "build_raw_record", "read_answer", "read_body", "safe_read_stream"]
