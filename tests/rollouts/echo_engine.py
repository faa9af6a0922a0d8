"""A small engine for tests: answers in the caller's dialect with the caller's last message, or fails where it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

Fail = Callable[[dict[str, Any], int], int | str | None]
"""(request, number of the call) -> HTTP status, `cut` (a stream without its end), or null to answer well."""


class EchoEngine:
    """ASGI application. `calls` counts what reached it."""

    def __init__(self, fail: Fail | None = None) -> None:
        self.calls = 0
        self.delay_s = 0.0
        self._fail = fail or (lambda request, number: None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        request: dict[str, Any] = orjson.loads(body)
        self.calls += 1
        await asyncio.sleep(self.delay_s)
        fault = self._fail(request, self.calls)
        dialect = scope["path"].removeprefix("/v1/")
        if isinstance(fault, int):
            await _answer(send, fault, orjson.dumps({"error": {"message": "told to fail"}}))
        elif request.get("stream"):
            events = list(_events(dialect, request))
            await _stream(send, events[: len(events) // 2] if fault == "cut" else events)
        else:
            await _answer(send, 200, orjson.dumps(_whole(dialect, request)))


def last_text(request: dict[str, Any]) -> str:
    """The text of the caller's last message, whatever the dialect."""
    messages = request.get("messages", request.get("input"))
    if isinstance(messages, str):
        return messages
    content = messages[-1].get("content", messages[-1].get("output"))
    return content if isinstance(content, str) else str(content[-1].get("text"))


def _whole(dialect: str, request: dict[str, Any]) -> dict[str, Any]:
    text, model = last_text(request), request.get("model", "echo")
    if dialect == "responses":
        return _response("completed", text, model)
    if dialect == "messages":
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 3},
        }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
    }


def _response(status: str, text: str, model: str) -> dict[str, Any]:
    done = status == "completed"
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {
        "id": "item_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": model,
        "output": [item] if done else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 13,
        }
        if done
        else None,
    }


def _events(dialect: str, request: dict[str, Any]) -> Iterator[bytes]:
    text, model = last_text(request), request.get("model", "echo")
    if dialect == "responses":
        yield from _response_events(text, model)
    elif dialect == "messages":
        yield from _message_events(text, request)
    else:
        chunk = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model,
        }
        for delta, finish in (
            ({"role": "assistant", "content": ""}, None),
            ({"content": text}, None),
            ({}, "stop"),
        ):
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            yield _event(None, {**chunk, "choices": [choice]})
        usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
        yield _event(None, {**chunk, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


def _response_events(text: str, model: str) -> Iterator[bytes]:
    final = _response("completed", text, model)
    item = final["output"][0]
    place = {"item_id": "item_1", "output_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": _response("in_progress", text, model)},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {
            "type": "response.content_part.added",
            **place,
            "content_index": 0,
            "part": {**item["content"][0], "text": ""},
        },
        {
            "type": "response.output_text.delta",
            **place,
            "content_index": 0,
            "delta": text,
            "logprobs": [],
        },
        {
            "type": "response.output_text.done",
            **place,
            "content_index": 0,
            "text": text,
            "logprobs": [],
        },
        {
            "type": "response.content_part.done",
            **place,
            "content_index": 0,
            "part": item["content"][0],
        },
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": final},
    ]
    for number, event in enumerate(events):
        yield _event(event["type"], {**event, "sequence_number": number})


def _message_events(text: str, request: dict[str, Any]) -> Iterator[bytes]:
    start = _whole("messages", request)
    usage = {"input_tokens": 10, "output_tokens": 1}
    started = {**start, "content": [], "stop_reason": None, "usage": usage}
    for event in (
        {"type": "message_start", "message": started},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": text},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 3},
        },
        {"type": "message_stop"},
    ):
        yield _event(event["type"], event)


def _event(name: str | None, data: Any) -> bytes:
    return (f"event: {name}\n".encode() if name else b"") + b"data: %s\n\n" % orjson.dumps(data)


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _stream(send: Send, events: list[bytes]) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for event in events:
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
