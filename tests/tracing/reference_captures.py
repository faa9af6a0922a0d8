"""Makes captures with the middleware of the package nemo-gym: run by that package's Python as `python reference_captures.py DIR`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from nemo_gym import base_responses_api_model as reference  # type: ignore[import-not-found]

CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}
    ],
    "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
}
MESSAGES_EVENTS: list[tuple[str, dict[str, Any]]] = [
    (
        "message_start",
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 1},
            },
        },
    ),
    (
        "content_block_start",
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
    ),
    (
        "content_block_delta",
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Hi"},
        },
    ),
    ("content_block_stop", {"type": "content_block_stop", "index": 0}),
    (
        "message_delta",
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 2},
        },
    ),
    ("message_stop", {"type": "message_stop"}),
]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers chat with JSON, messages with a stream, and responses with a 429."""
    while (await receive()).get("more_body"):
        pass
    if scope["path"].endswith("/messages"):
        kind, status = b"text/event-stream", 200
        body = "".join(
            f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in MESSAGES_EVENTS
        )
    elif scope["path"].endswith("/responses"):
        kind, status = b"application/json", 429
        body = json.dumps({"error": {"message": "slow down", "type": "rate_limit"}})
    else:
        kind, status, body = b"application/json", 200, json.dumps(CHAT)
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]}
    )
    await send({"type": "http.response.body", "body": body.encode()})


async def call(captured: Any, path: str, body: dict[str, Any]) -> None:
    """One request through the middleware."""
    messages = iter([{"type": "http.request", "body": json.dumps(body).encode()}])

    async def receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: dict[str, Any]) -> None:
        pass

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"x-session-id", b"s-1")],
    }
    await captured(scope, receive, send)


async def main(directory: str) -> None:
    store = reference.CaptureStore(directory)
    captured = reference._CaptureMiddleware(app, store=store, model_server_name="policy_model")
    for rollout in ("0-0", "0-0-a1", "1-0"):
        said = [{"role": "user", "content": "Hi"}]
        prefix = f"/ng-rollout/{rollout}/v1"
        await call(captured, f"{prefix}/chat/completions", {"model": "m", "messages": said})
        await call(
            captured,
            f"{prefix}/messages",
            {"model": "m", "max_tokens": 9, "stream": True, "messages": said},
        )
        await call(captured, f"{prefix}/responses", {"model": "m", "input": "Hi"})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
