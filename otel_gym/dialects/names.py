"""The four dialects and the ways in which their streams end."""

from __future__ import annotations

from typing import Literal

DialectName = Literal["responses", "chat", "messages", "completions"]
"""`responses` /v1/responses, `chat` /v1/chat/completions, `messages` /v1/messages, `completions` /v1/completions."""

Terminal = Literal["complete", "incomplete", "error"]
"""How a stream said that it ended. A stream that said nothing has no terminal (`None`)."""

DIALECTS: tuple[DialectName, ...] = ("responses", "chat", "messages", "completions")
