"""What an OTLP backend's answer means for the spans that were sent: https://opentelemetry.io/docs/specs/otlp/#failures.

| kind | answers | what is known |
|---|---|---|
| accepted | 2xx, gRPC OK, each perhaps with `partial_success` | the spans are there, but for `rejected_spans` |
| refused | 400, 413; INVALID_ARGUMENT, message too large | this request can never be accepted as it is |
| retry | no connection, 429, 503; UNAVAILABLE, ABORTED, CANCELLED, RESOURCE_EXHAUSTED with RetryInfo | the backend cannot take anything now |
| failed | everything else: other codes, an answer that broke off or never came, a web page | either the backend is at fault or a span in the request |

The specification lets a client drop what got an answer of the last kind. Here nothing is dropped: `delivery` finds out who is at fault.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal

from google.protobuf.json_format import Parse  # type: ignore[import-untyped] # ships no types
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_gym.tracing.endpoint import without_secrets

MAX_REASON_LENGTH: Final = 300
MAX_RETRY_AFTER_S: Final = 300.0

_HTTP_REFUSED: Final = frozenset({400, 413})
_HTTP_RETRY: Final = frozenset({429, 503})
_GRPC_REFUSED: Final = frozenset({"INVALID_ARGUMENT"})
_GRPC_RETRY: Final = frozenset({"UNAVAILABLE", "ABORTED", "CANCELLED"})

Kind = Literal["accepted", "refused", "retry", "failed"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a backend made of a request."""

    kind: Kind
    reason: str = ""
    retry_after_s: float | None = None
    rejected_spans: int = 0
    """Of an accepted request: spans that the backend said it did not take (`partial_success`)."""


ACCEPTED: Final = Answer("accepted")


def no_answer(shown: str, error: Exception, *, is_connected: bool) -> Answer:
    """The answer that an error of the transport stands for; `is_connected` where the request may have reached the backend."""
    reason = f"{shown}: {type(error).__name__}: {error}"[:MAX_REASON_LENGTH]
    return Answer("failed" if is_connected else "retry", reason)


def http_answer(shown: str, status: int, headers: Mapping[str, str], content: bytes) -> Answer:
    """The answer that an HTTP response is."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if 200 <= status < 300:
        if kind == "text/html" or content[:256].lstrip().lower().startswith(
            (b"<!doctype", b"<html")
        ):
            return Answer(
                "failed", f"{shown}: HTTP {status} with a web page; is this an OTLP receiver?"
            )
        return accepted_or_partial(content, is_json=kind == "application/json")
    reason = f"{shown}: HTTP {status} {_readable(content)}".rstrip()
    if 300 <= status < 400 and (target := headers.get("location")):
        reason = f"{shown}: HTTP {status}: redirects to {without_secrets(target)}, which is not followed; set that as the endpoint"
    return Answer(
        "refused" if status in _HTTP_REFUSED else "retry" if status in _HTTP_RETRY else "failed",
        reason[:MAX_REASON_LENGTH],
        _retry_after_s(headers),
    )


def grpc_answer(shown: str, error: Any) -> Answer:
    """The answer that a `grpc.RpcError` is."""
    code, details = error.code().name, error.details() or ""
    reason = f"{shown}: {code}: {_readable(details.encode('utf-8', 'replace'))}"[:MAX_REASON_LENGTH]
    wait_s = _retry_info_s(error)
    if code in _GRPC_REFUSED or (code == "RESOURCE_EXHAUSTED" and "larger than max" in details):
        return Answer("refused", reason)
    may_return = code in _GRPC_RETRY or (code == "RESOURCE_EXHAUSTED" and wait_s is not None)
    return Answer("retry" if may_return else "failed", reason, wait_s)


def accepted_or_partial(reply: bytes, *, is_json: bool = False) -> Answer:
    """Reads `partial_success`; an answer that is no such message is taken as it was meant: accepted."""
    if not reply:
        return ACCEPTED
    message = ExportTraceServiceResponse()
    try:
        if is_json:
            Parse(reply, message, ignore_unknown_fields=True)
        else:
            message.ParseFromString(reply)
    except Exception:  # noqa: BLE001 - protobuf's error class differs by its backend; an odd body of a 200 is still a 200
        return ACCEPTED
    partial = message.partial_success
    if partial.rejected_spans <= 0:
        return ACCEPTED
    return Answer(
        "accepted",
        _readable(partial.error_message.encode()) or "rejected without a reason",
        rejected_spans=partial.rejected_spans,
    )


def _readable(content: bytes) -> str:
    """The readable part of an error body, in one line."""
    return " ".join(
        "".join(
            character if character.isprintable() else " "
            for character in content[:MAX_REASON_LENGTH].decode("utf-8", "replace")
        ).split()
    )


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds, bounded; its date is compared with the backend's own clock where the answer says that."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), MAX_RETRY_AFTER_S)
    until_s = _unix_s(value)
    if until_s is None:
        return None
    now_s = _unix_s(headers.get("date", "")) or time.time()
    return min(max(until_s - now_s, 0.0), MAX_RETRY_AFTER_S)


def _unix_s(date: str) -> float | None:
    """An HTTP date as Unix seconds, null for what is none."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _retry_info_s(error: Any) -> float | None:
    """`RetryInfo.retry_delay` of a gRPC status in seconds, bounded; null without one.

    It stands among the details of the status (https://grpc.io/docs/guides/error/#richer-error-model); some servers send it by itself.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # ships no types
    from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped] # ships no types
    from google.rpc.status_pb2 import Status  # type: ignore[import-untyped] # ships no types

    info = RetryInfo()
    for key, value in error.trailing_metadata() or ():
        try:
            if key == "google.rpc.retryinfo-bin":
                info.ParseFromString(value)
            elif key == "grpc-status-details-bin":
                status = Status()
                status.ParseFromString(value)
                if not any(detail.Unpack(info) for detail in status.details):
                    continue
            else:
                continue
        except DecodeError:
            continue
        delay_s = float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
        return min(max(delay_s, 0.0), MAX_RETRY_AFTER_S)
    return None
