"""Tool calls and reasoning of a response, whatever its dialect: its shape decides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from otel_gym.dialects.jsontext import loads

_THINK = re.compile(r"\s*<think>(.*?)(?:</think>|\Z)", re.DOTALL)
_HOSTED_ARGUMENTS = ("arguments", "input", "action", "actions", "operation", "code", "queries")


def tool_calls_of(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every tool call as `call_id`, `name`, `arguments`, in the order of the response."""
    if isinstance(response.get("output"), list):
        return [
            _item_call(item) for item in _objects(response["output"]) if _is_call(item.get("type"))
        ]
    if isinstance(response.get("choices"), list):
        return [call for message in _messages(response) for call in _message_calls(message)]
    if isinstance(response.get("content"), list):
        return [
            _call(block.get("id"), block.get("name"), block.get("input"))
            for block in _objects(response["content"])
            if isinstance(block.get("type"), str) and block["type"].endswith("tool_use")
        ]
    return []


def reasoning_of(response: Mapping[str, Any]) -> str | None:
    """Reasoning text from every field that carries it, joined by newline; null where there is none."""
    if isinstance(response.get("output"), list):
        texts = [
            text
            for item in _objects(response["output"])
            if item.get("type") == "reasoning"
            for text in _item_reasoning(item)
        ]
    elif isinstance(response.get("choices"), list):
        texts = [_message_reasoning(message) for message in _messages(response)]
    elif isinstance(response.get("content"), list):
        texts = [
            block["thinking"]
            for block in _objects(response["content"])
            if block.get("type") in ("thinking", "redacted_thinking")
            and isinstance(block.get("thinking"), str)
        ]
    else:
        return None
    return "\n".join(text for text in texts if text) or None


def _is_call(kind: object) -> bool:
    return isinstance(kind, str) and kind.endswith("_call")


def _item_call(item: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call item: function, custom, MCP, or hosted (named by its type)."""
    kind = item["type"]
    arguments: object = None
    for key in _HOSTED_ARGUMENTS:
        if item.get(key) is not None:
            arguments = item[key]
            break
    name = item.get("name")
    if not isinstance(name, str):
        name = kind.removesuffix("_call")
    return _call(item.get("call_id") or item.get("id"), name, arguments)


def _message_calls(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for call in _objects(message.get("tool_calls")):
        function = call.get("function")
        custom = call.get("custom")
        if isinstance(custom, dict) and (custom.get("name") or not isinstance(function, dict)):
            yield _call(call.get("id"), custom.get("name"), custom.get("input"))
        elif isinstance(function, dict):
            yield _call(call.get("id"), function.get("name"), function.get("arguments"))
        else:
            yield _call(call.get("id"), None, None)
    legacy = message.get("function_call")
    if isinstance(legacy, dict) and legacy.get("name"):
        yield _call(None, legacy.get("name"), legacy.get("arguments"))


def _call(identity: object, name: object, arguments: object) -> dict[str, Any]:
    return {
        "call_id": identity if isinstance(identity, str) else None,
        "name": name if isinstance(name, str) else None,
        "arguments": _arguments(arguments),
    }


def _arguments(value: object) -> Any:
    """An object or list as it is, JSON text parsed, other text as `{"_raw": text}`, else `{}`."""
    if isinstance(value, dict | list):
        return value
    if isinstance(value, str):
        try:
            return loads(value.encode("utf-8", "surrogatepass"))
        except ValueError:
            return {"_raw": value}
    return {}


def _item_reasoning(item: Mapping[str, Any]) -> Iterator[str]:
    for parts in ("summary", "content"):
        for part in _objects(item.get(parts)):
            if isinstance(part.get("text"), str):
                yield part["text"]


def _message_reasoning(message: Mapping[str, Any]) -> str:
    """`reasoning_content`, else `reasoning`, else `reasoning_details`, thinking parts, a `<think>` block."""
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str) and message[key]:
            return message[key]  # type: ignore[no-any-return]
    details = "".join(
        text
        for part in _objects(message.get("reasoning_details"))
        for text in (part.get("text"), part.get("summary"))
        if isinstance(text, str)
    )
    if details:
        return details
    content = message.get("content")
    if isinstance(content, list):
        return "".join(_thinking_parts(content))
    if isinstance(content, str):
        found = _THINK.match(content)
        if found:
            return found.group(1).strip("\n")
    return ""


def _thinking_parts(content: list[Any]) -> Iterator[str]:
    for part in _objects(content):
        thinking = part.get("thinking")
        if isinstance(thinking, str):
            yield thinking
        for inner in _objects(thinking):
            if isinstance(inner.get("text"), str):
                yield inner["text"]


def _messages(response: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for choice in _objects(response["choices"]):
        message = choice.get("message")
        if isinstance(message, dict):
            yield message
        else:
            yield choice


def _objects(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, dict)]
