"""A request and its response as a conversation that a person can read, whatever the dialect. Pure functions.

Message
├── role       as the dialect says: system, developer, user, assistant, tool, or the kind of an item that has none
├── origin     request or response
└── parts
    ├── text, reasoning, refusal      prose
    ├── tool_call                     name, call_id, arguments as text
    ├── tool_result                   call_id, what came back
    ├── image, audio, file            a placeholder: media type, size, digest; never the thing itself
    └── json                          whatever is none of these, as it stands
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from otel_gym.viewer.index.messages import request_items
from otel_gym.viewer.nesting import readable


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a message."""

    kind: str
    text: str = ""
    name: str | None = None
    """Name of a tool, or what a placeholder stands for."""
    call_id: str | None = None
    """Which tool call it is, or answers."""
    language: str = "text"
    """`json` where the text is JSON laid out for reading."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message."""

    role: str
    origin: str
    parts: tuple[Part, ...]
    name: str | None = None
    finish_reason: str | None = None


_TEXT: Final = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
_REASONING: Final = frozenset({"thinking", "redacted_thinking", "reasoning"})
_IMAGES: Final = frozenset({"image", "image_url", "input_image", "image_file"})
_AUDIO: Final = frozenset({"audio", "input_audio"})
_FILES: Final = frozenset({"file", "input_file", "document", "container_upload"})
_MAX_PARTS: Final = 2000


def request_messages(dialect: str, request: Mapping[str, Any] | None) -> list[Message]:
    """The messages of a request, one for each of its `request_items`."""
    return [_message(item, "request") for item in request_items(dialect, request or {})]


def response_messages(response: Mapping[str, Any] | None) -> list[Message]:
    """The messages of a response: one a choice, one an output item."""
    if not response:
        return []
    if isinstance(choices := response.get("choices"), list):
        return [_choice(choice) for choice in choices]
    if isinstance(output := response.get("output"), list):
        return [_message(item, "response", "assistant") for item in output]
    if "content" in response:
        return [_message(response, "response", "assistant", _string(response.get("stop_reason")))]
    if "error" in response:
        return [Message("error", "response", (_json(response["error"]),))]
    return [Message("assistant", "response", (_json(response),))]


def _choice(choice: Any) -> Message:
    if not isinstance(choice, dict):
        return Message("assistant", "response", (_json(choice),))
    reason = _string(choice.get("finish_reason"))
    if isinstance(message := choice.get("message"), dict):
        return _message(message, "response", "assistant", reason)
    if isinstance(text := choice.get("text"), str):
        return Message("assistant", "response", (Part("text", text),), finish_reason=reason)
    return Message("assistant", "response", (_json(choice),), finish_reason=reason)


def _message(
    item: Any, origin: str, role: str | None = None, finish_reason: str | None = None
) -> Message:
    if isinstance(item, str):
        return Message(role or "user", origin, (Part("text", item),))
    if not isinstance(item, dict):
        return Message(role or "user", origin, (_json(item),))
    kind = _string(item.get("type")) or "message"
    if "role" not in item and kind != "message":
        # An item of the Responses API that is no message: a tool call, its output, reasoning.
        part = _block(item)
        return Message(
            "tool" if part.kind == "tool_result" else role or "assistant", origin, (part,)
        )
    spoken = _string(item.get("role")) or role or "user"
    parts: list[Part] = []
    for key in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(text := item.get(key), str) and text:
            parts.append(Part("reasoning", text))
            break
    content = item.get("content")
    if spoken in ("tool", "function"):
        text = content if isinstance(content, str) else _flat(content)
        parts.append(_result(text, item.get("tool_call_id") or item.get("name")))
    else:
        parts.extend(_content(content))
    if isinstance(text := item.get("refusal"), str) and text:
        parts.append(Part("refusal", text))
    calls = item.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        parts.append(_chat_tool_call(call))
    if isinstance(call := item.get("function_call"), dict):
        parts.append(_tool_call(call.get("name"), call.get("arguments"), None))
    if isinstance(item.get("audio"), dict):
        parts.append(_block({"type": "audio", **item["audio"]}))
    return Message(
        spoken, origin, tuple(parts[:_MAX_PARTS]), _string(item.get("name")), finish_reason
    )


def _content(content: Any) -> Iterable[Part]:
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (Part("text", content),)
    if isinstance(content, list):
        return [_block(block) for block in content]
    return (_json(content),)


def _block(block: Any) -> Part:
    """One content block or output item of any dialect."""
    if isinstance(block, str):
        return Part("text", block)
    if not isinstance(block, dict):
        return _json(block)
    kind = _string(block.get("type")) or ""
    if kind in _TEXT and isinstance(block.get("text"), str):
        return Part("text", block["text"])
    if kind == "refusal":
        return Part("refusal", str(block.get("refusal") or ""))
    if kind in _REASONING:
        return _reasoning(block, kind)
    if kind in ("function_call", "custom_tool_call"):
        arguments = block.get("arguments") if kind == "function_call" else block.get("input")
        return _tool_call(block.get("name"), arguments, block.get("call_id") or block.get("id"))
    if kind.endswith("tool_use"):
        return _tool_call(block.get("name"), block.get("input"), block.get("id"))
    if kind.endswith("_call_output"):
        return _result(_flat(block.get("output")), block.get("call_id"))
    if kind.endswith("tool_result"):
        return _result(_flat(block.get("content")), block.get("tool_use_id"))
    if kind.endswith("_call"):
        # Hosted tools of the Responses API: the item is call and result in one.
        return Part("tool_call", _laid_out(block), kind.removesuffix("_call"), block.get("id"), "json")  # fmt: skip
    for kinds, name in ((_IMAGES, "image"), (_AUDIO, "audio"), (_FILES, "file")):
        if kind in kinds:
            return Part(name, placeholder(block), name)
    return _json(block)


def _reasoning(block: Mapping[str, Any], kind: str) -> Part:
    texts: list[str] = []
    for value in (block.get("thinking"), block.get("text"), block.get("summary"), block.get("content")):  # fmt: skip
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            texts.extend(v["text"] for v in value if isinstance(v, dict) and isinstance(v.get("text"), str))  # fmt: skip
    hidden = block.get("data") or block.get("encrypted_content")
    if not texts and isinstance(hidden, str):
        return Part("reasoning", f"[{len(hidden):,} characters, encrypted by the provider]", kind)
    return Part("reasoning", "\n".join(texts), kind)


def _chat_tool_call(call: Any) -> Part:
    if not isinstance(call, dict):
        return _json(call)
    for key, field in (("function", "arguments"), ("custom", "input")):
        if isinstance(inner := call.get(key), dict):
            return _tool_call(inner.get("name"), inner.get(field), call.get("id"))
    return _json(call)


def _tool_call(name: Any, arguments: Any, call_id: Any) -> Part:
    if isinstance(arguments, str):
        try:
            text, language = _laid_out(readable(orjson.loads(arguments))), "json"
        except orjson.JSONDecodeError:
            text, language = arguments, "text"
    else:
        text, language = ("", "text") if arguments is None else (_laid_out(arguments), "json")
    return Part("tool_call", text, _string(name) or "?", _string(call_id), language)


def _result(text: str, call_id: Any) -> Part:
    return Part("tool_result", text, call_id=_string(call_id))


def _flat(content: Any) -> str:
    """Text of a tool's result; blocks that are no text as their placeholder or JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            f"[{part.text}]" if part.kind in ("image", "audio", "file") else part.text
            for part in map(_block, content)
        )
    return "" if content is None else _laid_out(content)


def placeholder(block: Mapping[str, Any]) -> str:
    """What stands for an image, a sound or a file: type, size and digest, or where it is; never its bytes."""
    inner = dict(block)
    for key in ("image_url", "source", "input_audio", "file", "audio"):
        value = block.get(key)
        if isinstance(value, dict):
            inner.update(value)
        elif isinstance(value, str):
            inner["url"] = value
    facts: list[str] = []
    media = inner.get("media_type") or inner.get("format")
    data = inner.get("data") or inner.get("file_data")
    url = inner.get("url")
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.partition(",")
        media = head[5:].partition(";")[0] or media
        url = None
    if isinstance(media, str):
        facts.append(media[:80])
    if isinstance(data, str):
        facts.extend(_bytes_facts(data))
    for key in ("filename", "file_id", "id", "detail", "title"):
        if isinstance(inner.get(key), str):
            facts.append(f"{key} {inner[key][:120]}")
    if isinstance(url, str):
        facts.append(f"at {url[:200]}")
    return " · ".join(facts) or "no facts given"


def _bytes_facts(data: str) -> list[str]:
    data = data.partition(",")[2] if data.startswith("data:") else data
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return [f"{len(data):,} characters"]
    return [f"{len(decoded):,} bytes", f"sha256 {hashlib.sha256(decoded).hexdigest()[:16]}"]


def _json(value: Any) -> Part:
    name = _string(value.get("type")) if isinstance(value, dict) else None
    return Part("json", _laid_out(value), name, language="json")


def _laid_out(value: Any) -> str:
    """JSON for reading: on one line where that is short."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) <= 80:
        return line
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except (TypeError, ValueError):
        return json.dumps(value, indent=2)


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
