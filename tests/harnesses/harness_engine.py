"""A loopback engine for coding harnesses: answers in their dialect with one tool call, then with a last word.

The tool call writes `FILE` in the harness's working directory, so that a test can see that the harness really ran it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

SHELL = "printf done-by-the-tool"
"""What the engine asks the harness to run."""
LAST = "The tool was run."


class HarnessEngine:
    """ASGI application. `requests` holds (path, request) of every model call that had tools to offer."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.paths.append(f"{scope['method']} {scope['path']}")
        path = scope["path"]
        if scope["method"] != "POST" or path not in ("/v1/responses", "/v1/messages"):
            status = 200 if path.endswith("count_tokens") else 404
            await _answer(send, status, {"input_tokens": 9} if status == 200 else {"error": {}})
            return
        request: dict[str, Any] = orjson.loads(body)
        self.requests.append((path, request))
        events = list(_responses(request) if path == "/v1/responses" else _messages(request))
        if request.get("stream"):
            await _stream(send, events)
        elif path == "/v1/responses":
            await _answer(send, 200, events[-1]["response"])
        else:
            await _answer(send, 200, _whole_message(request))


def _responses(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    item = _responses_item(request)
    usage = {
        "input_tokens": 1200,
        "input_tokens_details": {"cached_tokens": 1000},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 1220,
    }
    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": request["model"]}
    started = {**base, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": started}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    if item["type"] == "message":
        yield {
            "type": "response.output_text.delta",
            "item_id": item["id"],
            "output_index": 0,
            "content_index": 0,
            "delta": LAST,
        }
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    completed = {**base, "status": "completed", "output": [item], "usage": usage}
    yield {"type": "response.completed", "response": completed}


def _responses_item(request: dict[str, Any]) -> dict[str, Any]:
    called = any(
        isinstance(one, dict) and str(one.get("type")).endswith("_call_output")
        for one in request["input"]
    )
    arguments = {
        "exec_command": {"cmd": SHELL},
        "shell_command": {"command": SHELL},
        "shell": {"command": ["sh", "-c", SHELL]},
    }
    names = {one.get("name") for one in request.get("tools") or ()}
    name = next((one for one in arguments if one in names), None)
    if called or name is None:
        part = {"type": "output_text", "text": LAST, "annotations": []}
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
    return {
        "id": "fc_1",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_1",
        "name": name,
        "arguments": orjson.dumps(arguments[name]).decode(),
    }


def _message_block(request: dict[str, Any]) -> dict[str, Any]:
    names = {one.get("name") for one in request.get("tools") or ()}
    last = request["messages"][-1]["content"]
    called = isinstance(last, list) and any(one.get("type") == "tool_result" for one in last)
    if called or "Bash" not in names:
        return {"type": "text", "text": LAST}
    arguments = {"command": SHELL, "description": "Say that it is done"}
    return {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": arguments}


def _whole_message(request: dict[str, Any]) -> dict[str, Any]:
    block = _message_block(request)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [block],
        "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 200, "cache_read_input_tokens": 1000, "output_tokens": 20},
    }


def _messages(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    whole = _whole_message(request)
    [block] = whole["content"]
    usage = {**whole["usage"], "output_tokens": 1}
    yield {
        "type": "message_start",
        "message": {**whole, "content": [], "stop_reason": None, "usage": usage},
    }
    if block["type"] == "tool_use":
        empty: dict[str, Any] = {**block, "input": {}}
        text = orjson.dumps(block["input"]).decode()
        delta = {"type": "input_json_delta", "partial_json": text}
    else:
        empty = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    yield {"type": "content_block_start", "index": 0, "content_block": empty}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 20}}
    yield {"type": "message_stop"}


async def _answer(send: Send, status: int, value: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps(value)})


async def _stream(send: Send, events: list[dict[str, Any]]) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for number, event in enumerate(events):
        data = orjson.dumps({**event, "sequence_number": number})
        body = b"event: %s\ndata: %s\n\n" % (event["type"].encode(), data)
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b""})
