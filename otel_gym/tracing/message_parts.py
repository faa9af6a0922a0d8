"""Parts of messages as the GenAI conventions shape them; bytes are never copied, only referred to.

https://opentelemetry.io/docs/specs/semconv/gen-ai/ (input and output message schemas): a message is `{role, parts, name?, finish_reason?}`, a part has a
`type` and the fields of that type. Images, audio and files given inline become references by digest.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import orjson

from otel_gym.tracing.reading import mapping, sequence

Part: TypeAlias = dict[str, Any]
Message: TypeAlias = dict[str, Any]

FINISH_REASONS: Final[Mapping[str, str]] = {
    "tool_calls": "tool_call",
    "function_call": "tool_call",
    "tool_use": "tool_call",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "refusal": "content_filter",
}
"""An engine's finish reason -> the one of the message schema; others stay."""


def text_part(content: object) -> Part:
    """A text part."""
    return {"type": "text", "content": content if isinstance(content, str) else _json(content)}


def reasoning_part(content: str) -> Part:
    """A reasoning part."""
    return {"type": "reasoning", "content": content}


def tool_call_part(identity: object, name: object, arguments: object) -> Part:
    """A tool call; arguments given as JSON text are parsed, and stay as they are where that fails."""
    part: Part = {"type": "tool_call", "name": name if isinstance(name, str) else ""}
    if isinstance(identity, str):
        part["id"] = identity
    if isinstance(arguments, str):
        with contextlib.suppress(orjson.JSONDecodeError):
            arguments = orjson.loads(arguments)
    if arguments is not None:
        part["arguments"] = arguments
    return part


def tool_result_part(identity: object, response: object) -> Part:
    """The result of a tool call."""
    part: Part = {"type": "tool_call_response", "response": response}
    if isinstance(identity, str):
        part["id"] = identity
    return part


def server_tool_part(item: Mapping[str, Any]) -> Part:
    """A tool that the provider runs by itself."""
    kind = str(item.get("type"))
    part: Part = {
        "type": "server_tool_call",
        "name": item["name"] if isinstance(item.get("name"), str) else kind,
        "server_tool_call": {
            key: value for key, value in item.items() if key not in ("id", "name")
        },
    }
    if isinstance(item.get("id"), str):
        part["id"] = item["id"]
    return part


def media_part(modality: str, url: object, mime_type: object = None) -> Part:
    """An image or the like by its URL; a `data:` URL becomes a reference by digest."""
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        return inline_part(modality, data, head.partition(";")[0] or mime_type)
    part: Part = {"type": "uri", "modality": modality, "uri": url if isinstance(url, str) else ""}
    if isinstance(mime_type, str):
        part["mime_type"] = mime_type
    return part


def inline_part(modality: str, data: object, mime_type: object = None) -> Part:
    """Base64 data as a reference: `sha256:` and the digest of the decoded bytes, with their number."""
    encoded = data.encode("utf-8", "replace") if isinstance(data, str) else b""
    try:
        content = base64.b64decode(encoded, validate=False)
    except (binascii.Error, ValueError):
        content = encoded
    part: Part = {
        "type": "uri",
        "modality": modality,
        "uri": f"sha256:{hashlib.sha256(content).hexdigest()}",
        "size_bytes": len(content),
    }
    if isinstance(mime_type, str) and mime_type:
        part["mime_type"] = mime_type
    return part


def file_part(modality: str, file_id: object) -> Part:
    """A file that the provider keeps."""
    return {"type": "file", "modality": modality, "file_id": str(file_id)}


def other_part(item: object) -> Part:
    """A part of a kind that the conventions do not know: kept as it is under its own type."""
    if isinstance(item, Mapping):
        kind = item.get("type")
        return {**item, "type": kind if isinstance(kind, str) and kind else "unknown"}
    return text_part(item)


def message(
    role: object, parts: list[Part], *, name: object = None, finish_reason: object = None
) -> Message:
    """A message."""
    made: Message = {"role": role if isinstance(role, str) else "user", "parts": parts}
    if isinstance(name, str):
        made["name"] = name
    if isinstance(finish_reason, str):
        made["finish_reason"] = FINISH_REASONS.get(finish_reason, finish_reason)
    return made


def function_definition(name: object, described: Mapping[str, Any], parameters: str) -> Part:
    """A function tool; `parameters` is the key of its JSON schema in `described`."""
    made: Part = {"type": "function", "name": name if isinstance(name, str) else ""}
    for key, source in (("description", "description"), ("parameters", parameters)):
        if described.get(source) is not None:
            made[key] = described[source]
    return made


def openai_content(content: object) -> list[Part]:
    """The parts of an OpenAI message's content, of Chat and of Responses."""
    if content is None:
        return []
    if not isinstance(content, list):
        return [text_part(content)]
    return [_openai_part(item) for item in content]


def _openai_part(item: object) -> Part:
    described = mapping(item)
    kind = described.get("type")
    if kind in ("text", "input_text", "output_text", "summary_text", "reasoning_text"):
        return text_part(described.get("text"))
    if kind == "refusal":
        return text_part(described.get("refusal"))
    if kind == "image_url":
        image = described.get("image_url")
        return media_part("image", mapping(image).get("url") if isinstance(image, dict) else image)
    if kind == "input_image":
        if described.get("image_url") is not None:
            return media_part("image", described["image_url"])
        return file_part("image", described.get("file_id"))
    if kind == "input_audio":
        audio = mapping(described.get("input_audio"))
        form = audio.get("format")
        return inline_part("audio", audio.get("data"), f"audio/{form}" if form else None)
    if kind in ("file", "input_file"):
        file = mapping(described.get("file")) or described
        if file.get("file_id") is not None:
            return file_part("document", file["file_id"])
        if file.get("file_url") is not None:
            return media_part("document", file["file_url"])
        return media_part("document", file.get("file_data"))
    return other_part(item)


def joined_texts(items: object) -> str:
    """The `text` of each item of a list, on lines of their own."""
    return "\n".join(
        text
        for item in sequence(items)
        if isinstance(text := mapping(item).get("text"), str) and text
    )


def _json(value: object) -> str:
    return orjson.dumps(value, default=str).decode()
