"""An error answered by us instead of the engine, in the shape that the caller's SDK reads.

Shapes: OpenAI `{"error": {message, type, param, code}}`; Anthropic `{"type": "error", "error": {type, message}}`.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from starlette.types import Send

from otel_gym.errors import OtelGymError


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a call is refused: HTTP status and the name that stands in `code` and in the record."""

    status: int
    code: str


ENGINE_UNREACHABLE = Reason(502, "engine_unreachable")
PIN_NOT_APPLICABLE = Reason(400, "sampling_pin_not_applicable")
NOT_RENDERABLE = Reason(400, "chat_not_renderable")
NO_CHAT_TEMPLATE = Reason(502, "chat_template_missing")


class Refusal(OtelGymError):
    """A call that is answered here, and why; its text is the message that the caller reads."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class EngineConnectionLost(OtelGymError):
    """The engine went away in the middle of its answer; the caller's connection is broken off in the same way."""


def error_body(path: str, reason: Reason, message: str) -> bytes:
    """The JSON error for a caller of `path`."""
    if "/messages" in path:
        kind = "api_error" if reason.status >= 500 else "invalid_request_error"
        return orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})
    kind = "server_error" if reason.status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": reason.code}
    return orjson.dumps({"error": error})


async def send_json(send: Send, status: int, body: bytes) -> None:
    """Send a whole JSON answer in one message."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
