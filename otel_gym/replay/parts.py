"""The public parts of a turn: what an agent's code reads and may edit.

A part corresponds to one output item, in order. Parts are compared with the items a turn was captured
from when it is replayed: where they differ, the items are stale and are not sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from otel_gym.replay.json_values import JsonValue

CLIENT_EXECUTED: Final = frozenset(
    {
        "apply_patch_call",
        "computer_call",
        "custom_tool_call",
        "local_shell_call",
        "shell_call",
    }
)
"""Item types that the client would have to execute and cannot."""

FUNCTION_CALL: Final = "function_call"
"""A call that the client can answer, if it has a call id, a name and an argument string."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """An assistant message: the text of its blocks, joined. `refusal` is set where it refused."""

    kind: ClassVar[str] = "text"
    text: str
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """Readable reasoning: the item's content where there is some, else its summary; may be empty."""

    kind: ClassVar[str] = "reasoning"
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A function call. `id` is the call id that its output answers; `arguments` the string as sent."""

    kind: ClassVar[str] = "tool_call"
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class HostedPart:
    """An item without public text (web search and the like): it exists only in the native items."""

    kind: ClassVar[str] = "hosted"
    item_type: str


Part: TypeAlias = TextPart | ReasoningPart | ToolCallPart | HostedPart


def parts_of(items: list[dict[str, Any]]) -> tuple[Part, ...]:
    """The parts of native items, one for each."""
    return tuple(_part_of(item) for item in items)


def public_words(parts: Iterable[Part]) -> list[tuple[str, ...]]:
    """What must agree between parts and items: text, readable reasoning, and calls in full.

    Refusals and the kind of a hosted item are left out: other archives have no field for them.
    """
    words: list[tuple[str, ...]] = []
    for part in parts:
        if isinstance(part, ToolCallPart):
            words.append((part.kind, part.id, part.name, part.arguments))
        elif isinstance(part, HostedPart):
            words.append((TextPart.kind, ""))
        else:
            words.append((part.kind, part.text))
    return words


def _part_of(item: dict[str, Any]) -> Part:
    kind = item.get("type")
    if kind in ("message", None) and item.get("role") == "assistant":
        content = item.get("content")
        if isinstance(content, str):
            return TextPart(content)
        words = "".join(_texts(content, _REFUSAL_BLOCKS, "refusal"))
        refused = any(block.get("type") in _REFUSAL_BLOCKS for block in _objects(content))
        return TextPart("".join(_texts(content, _TEXT_BLOCKS)), words if refused else None)
    if kind == "reasoning":
        content = _texts(item.get("content"), ("reasoning_text", "text"))
        summary = _texts(item.get("summary"), ("summary_text", "text"))
        return ReasoningPart("\n".join(content) if any(content) else "\n".join(summary))
    if kind == FUNCTION_CALL:
        call = [item.get("call_id"), item.get("name"), item.get("arguments")]
        if all(isinstance(value, str) for value in call):
            return ToolCallPart(*call)  # type: ignore[arg-type]  # each was just seen to be a str
    return HostedPart(kind if isinstance(kind, str) else "")


_TEXT_BLOCKS: Final = ("output_text", "text")
_REFUSAL_BLOCKS: Final = ("refusal",)


def _objects(blocks: JsonValue) -> list[dict[str, Any]]:
    return [b for b in blocks if isinstance(b, dict)] if isinstance(blocks, list) else []


def _texts(blocks: JsonValue, types: tuple[str, ...], field: str = "text") -> list[str]:
    return [
        block[field]
        for block in _objects(blocks)
        if block.get("type") in types and isinstance(block.get(field), str)
    ]


def part_to_json(part: Part) -> dict[str, Any]:
    """A part as a JSON object with its kind."""
    if isinstance(part, TextPart):
        return {"kind": part.kind, "text": part.text, "refusal": part.refusal}
    if isinstance(part, ReasoningPart):
        return {"kind": part.kind, "text": part.text}
    if isinstance(part, ToolCallPart):
        return {
            "kind": part.kind,
            "id": part.id,
            "name": part.name,
            "arguments": part.arguments,
        }
    return {"kind": part.kind, "item_type": part.item_type}


def part_from_json(value: dict[str, Any]) -> Part:
    """The part that `part_to_json` gave; KeyError or ValueError for anything else."""
    kind = value["kind"]
    for name, text in value.items():
        if not isinstance(text, str) and not (name == "refusal" and text is None):
            raise ValueError(f"the {name} of a part is no text")
    if kind == TextPart.kind:
        return TextPart(value["text"], value["refusal"])
    if kind == ReasoningPart.kind:
        return ReasoningPart(value["text"])
    if kind == ToolCallPart.kind:
        return ToolCallPart(value["id"], value["name"], value["arguments"])
    if kind == HostedPart.kind:
        return HostedPart(value["item_type"])
    raise ValueError(f"no such kind of part: {kind!r}")
