"""The recorded exchanges, as the corpus folder describes them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_gym.dialects import DialectName

DIALECTS: dict[str, DialectName] = {
    "openai-chat": "chat",
    "openai-responses": "responses",
    "anthropic-messages": "messages",
}
PATHS: dict[DialectName, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "completions": "/v1/completions",
}


@dataclass(frozen=True)
class Recorded:
    """One exchange and what the official SDK read from its bytes."""

    path: str
    dialect: DialectName
    status_code: int
    content_type: str
    content_encoding: str
    request: dict[str, Any] | None
    body: bytes
    streaming: bool
    expected: dict[str, Any]
    kind: str
    """`recording`, or the kind of a derived exchange."""
    transform: str

    @property
    def expect(self) -> dict[str, Any]:
        return self.expected.get("expect") or {}


def exchanges(corpus: Path, rows: str = "") -> Iterator[Recorded]:
    """Every exchange of the corpus, or of its folder `rows` (`derived`)."""
    expected = {
        row["path"]: row
        for row in map(
            json.loads, (corpus / rows / "expected.jsonl").read_text("utf-8").strip().split("\n")
        )
    }
    for path in sorted(expected):
        file = corpus / path
        exchange = json.loads(file.read_text("utf-8"))
        yield Recorded(
            path=path,
            dialect=DIALECTS[exchange["dialect"]],
            status_code=exchange["status_code"] or 200,
            content_type=exchange["content_type"] or "",
            content_encoding=exchange["content_encoding"] or "",
            request=exchange["request"] if isinstance(exchange["request"], dict) else None,
            body=base64.b64decode(exchange["response_body_b64"]),
            streaming=exchange["streaming"],
            expected=expected[path],
            kind=exchange.get("kind", "recording"),
            transform=exchange.get("transform", ""),
        )
