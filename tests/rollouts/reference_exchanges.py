"""Exchanges that both captures record: requests, and an ASGI application that answers each as the request asks. Imports nothing of either side."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 4},
}
CHAT = {
    "id": "c",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "t", "function": {"name": "add", "arguments": '{"a": 1}'}}],
            },
        }
    ],
    "usage": USAGE,
}
RESPONSES = {
    "id": "r",
    "model": "m",
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "output": [{"type": "reasoning", "summary": [{"text": "thought"}]}],
    "usage": {"input_tokens": 5, "output_tokens": 6, "total_tokens": 11},
}
MESSAGES = {
    "id": "msg",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "stop_reason": "tool_use",
    "content": [{"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}}],
    "usage": {"input_tokens": 5, "output_tokens": 6, "cache_read_input_tokens": 3},
}


def _events(*payloads: dict[str, Any] | str) -> list[bytes]:
    events = []
    for payload in payloads:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        name = payload.get("type") if isinstance(payload, dict) else None
        events.append((f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode())
    return events


def _delta(content: str, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"role": "assistant", "content": content}, **more}
    return {"id": "c", "model": "m", "choices": [choice]}


STREAMS = {
    "/v1/chat/completions": _events(
        _delta("y"),
        _delta("o", finish_reason="stop"),
        {"id": "c", "choices": [], "usage": USAGE},
        "[DONE]",
    ),
    "/v1/responses": _events(
        {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
        {"type": "response.completed", "response": {**RESPONSES, "status": "completed"}},
    ),
    "/v1/messages": _events(
        {"type": "message_start", "message": {**MESSAGES, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "ü 🦉"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ),
}
WHOLE = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}
CASES: list[tuple[str, bytes]] = [
    (path, body)
    for path in WHOLE
    for body in (
        b'{"model": "m"}',
        b'{"model": "m", "stream": true}',
        b'{"model": "m", "stream": true, "cut": true}',
        b'{"model": "m", "fail": 500}',
        b'{"model": "m", "fail": 429}',
        b'{"model": "m", "garbage": true}',
        b'{"model": "m", "large": true, "text": "\\ud83e\\udd89 \\u0000"}',
        b'{"model": ',
        b"[1, 2]",
        b"\xff\xfe\x00",
        b"",
    )
]


async def application(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Answers as the request's body asks."""
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    try:
        asked = json.loads(body)
    except ValueError:
        asked = {}
    asked = asked if isinstance(asked, dict) else {}
    path, status, kind = scope["path"], 200, b"application/json"
    if asked.get("stream"):
        kind = b"text/event-stream; charset=utf-8"
        chunks = STREAMS[path][: -1 if asked.get("cut") else None]
    elif "fail" in asked:
        status = asked["fail"]
        chunks = [b'{"error": {"message": "no"}}']
    elif asked.get("garbage"):
        chunks = [b"<html>", b"\xff</html>"]
    elif asked.get("large"):
        chunks = [json.dumps({**WHOLE[path], "padding": "x" * 200_000}).encode()]
    else:
        chunks = [json.dumps(WHOLE[path]).encode()]
    headers = [(b"content-type", kind)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
