"""The published shapes of content attributes, written down from their tables: messages of parts, parts by type, tool definitions."""

from __future__ import annotations

from typing import Any

STRING = {"type": "string"}
REQUIRED_BY_TYPE: dict[str, list[str]] = {
    "text": ["content"],
    "reasoning": ["content"],
    "tool_call": ["name"],
    "tool_call_response": ["response"],
    "server_tool_call": ["name", "server_tool_call"],
    "server_tool_call_response": ["server_tool_call_response"],
    "blob": ["modality", "content"],
    "file": ["modality", "file_id"],
    "uri": ["modality", "uri"],
}
STRINGS = ("content", "name", "id", "modality", "uri", "file_id", "mime_type")


def _part(required: list[str]) -> dict[str, Any]:
    strings = {key: STRING for key in STRINGS if key in required or key == "id"}
    return {"required": required, "properties": strings}


def _by_type(kinds: list[str]) -> dict[str, Any]:
    """A chain of if and else, so that a part is checked against its own type alone."""
    if not kinds:
        return {}
    kind = kinds[0]
    return {
        "if": {"properties": {"type": {"const": kind}}},
        "then": _part(REQUIRED_BY_TYPE[kind]),
        "else": _by_type(kinds[1:]),
    }


PART: dict[str, Any] = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"type": "string", "minLength": 1}},
    **_by_type(list(REQUIRED_BY_TYPE)),
}
MESSAGES: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["role", "parts"],
        "properties": {
            "role": STRING,
            "parts": {"type": "array", "items": PART},
            "name": STRING,
            "finish_reason": STRING,
        },
    },
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "gen_ai.input.messages": MESSAGES,
    "gen_ai.output.messages": MESSAGES,
    "gen_ai.system_instructions": {"type": "array", "items": PART},
    "gen_ai.tool.definitions": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["type", "name"],
            "properties": {"type": STRING, "name": STRING, "description": STRING},
        },
    },
}
