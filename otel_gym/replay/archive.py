"""JSON archives in the reference's form, for exchange with NeMo Gym's NOOA adapter.

An archive is a JSON list. A turn is an envelope of the reference's response event, each of its parts with
the complete item it came from; everything else is the plain message. A reader of ours may be handed an
archive that was edited or rebuilt without care, so what it says in public and what its items say can
differ: both are kept, and `project` decides.

What the event form has no field for is in its `metadata` under `otel_gym`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from otel_gym.replay.container import HistoryEntry
from otel_gym.replay.errors import ArchiveError
from otel_gym.replay.json_values import JsonValue, dump_json, load_json
from otel_gym.replay.native import NativeItems
from otel_gym.replay.parts import HostedPart, Part, ReasoningPart, TextPart, ToolCallPart, parts_of
from otel_gym.replay.response_facts import ResponseFacts
from otel_gym.replay.scope import ReplayScope
from otel_gym.replay.turn import Turn

TURN_CLASS: Final = "nooa.llm_types.LLMResponse"
"""The class that a turn's envelope names."""

_OURS: Final = "otel_gym"


def write_archive(history: Sequence[HistoryEntry]) -> bytes:
    """The history as a JSON archive; `ArchiveError` where a message has no JSON value."""
    values: list[JsonValue] = []
    for index, entry in enumerate(history):
        if isinstance(entry, Turn):
            values.append(turn_envelope(entry))
        elif "__type__" in entry:
            raise ArchiveError(f"[{index}]: a message may not have a key __type__")
        else:
            values.append(entry)
    try:
        return dump_json(values)
    except ValueError as error:
        raise ArchiveError(f"a message: {error}") from error


def read_archive(text: bytes | str) -> list[HistoryEntry]:
    """The history of a JSON archive, a list or one envelope. Raises `ArchiveError` naming the place."""
    try:
        values = load_json(text)
    except ValueError as error:
        raise ArchiveError(f"not JSON: {error}") from error
    if isinstance(values, dict):
        values = [values]
    if not isinstance(values, list):
        raise ArchiveError("want a list of messages and envelopes")
    return [_entry(f"[{index}]", value) for index, value in enumerate(values)]


def turn_envelope(turn: Turn) -> dict[str, Any]:
    """One turn as the reference's envelope, a JSON value with the complete items."""
    items: list[Any] = turn.native or []
    natives = items if len(items) == len(turn.parts) else [None] * len(turn.parts)
    ours: dict[str, Any] = {"status": turn.facts.status}
    refusals = {
        str(index): part.refusal
        for index, part in enumerate(turn.parts)
        if isinstance(part, TextPart) and part.refusal is not None
    }
    if refusals:
        ours["refusals"] = refusals
    return {
        "__type__": "pydantic",
        "__class__": TURN_CLASS,
        "data": {
            "event_type": "LLMResponse",
            "id": turn.digest[:32],
            "metadata": {_OURS: ours},
            "status": "active",
            "tag": None,
            "timestamp": None,
            "parts": [
                _part_value(part, native) for part, native in zip(turn.parts, natives, strict=True)
            ],
            "replay_scope": None if turn.scope is None else str(turn.scope),
            "finish_reason": turn.facts.finish_reason,
            "usage": turn.facts.usage,
            "model_name": turn.facts.model,
            "generation_id": turn.facts.response_id,
            "dynamic_context": None,
        },
    }


def _part_value(part: Part, native: JsonValue) -> dict[str, Any]:
    if isinstance(part, ToolCallPart):
        return {
            "kind": "tool_call",
            "id": part.id,
            "name": part.name,
            "arguments": part.arguments,
            "native": native,
        }
    if isinstance(part, HostedPart):
        return {"kind": "text", "text": "", "native": native}
    return {"kind": part.kind, "text": part.text, "native": native}


def _entry(where: str, value: JsonValue) -> HistoryEntry:
    if not isinstance(value, dict):
        raise ArchiveError(f"{where}: want an object, not {type(value).__name__}")
    if "__type__" not in value:
        return value
    if value.get("__class__") != TURN_CLASS or not isinstance(value.get("data"), dict):
        raise ArchiveError(f"{where}: no envelope of {TURN_CLASS}")
    return turn_from_envelope(value, where=where)


def turn_from_envelope(value: dict[str, Any], *, where: str = "envelope") -> Turn:
    """The turn of an envelope; its public parts are kept as they stand. Raises `ArchiveError`."""
    data = value["data"]
    described = data.get("parts")
    if not isinstance(described, list):
        raise ArchiveError(f"{where}.data.parts: want a list")
    metadata = data.get("metadata")
    ours = metadata.get(_OURS) if isinstance(metadata, dict) else None
    ours = ours if isinstance(ours, dict) else {}
    said = ours.get("refusals")
    refusals = said if isinstance(said, dict) else {}
    parts = [
        _part(f"{where}.data.parts[{index}]", part, refusals.get(str(index)))
        for index, part in enumerate(described)
    ]
    usage = data.get("usage")
    return Turn(
        parts=_own_parts(parts, described),
        native_items=_native(where, described),
        scope=_scope(data.get("replay_scope")),
        facts=ResponseFacts(
            response_id=_text(data.get("generation_id")),
            model=_text(data.get("model_name")),
            status=_text(ours.get("status")),
            finish_reason=_text(data.get("finish_reason")),
            usage=usage if isinstance(usage, dict) else None,
        ),
    )


def _native(where: str, described: list[Any]) -> NativeItems | None:
    """The items of all parts, null where one has none."""
    items = [part.get("native") for part in described]
    if not all(isinstance(item, dict) for item in items):
        return None
    try:
        return NativeItems.from_values(items)
    except ValueError as error:
        raise ArchiveError(f"{where}.data.parts: {error}") from error


def _own_parts(parts: list[Part], described: list[Any]) -> list[Part] | None:
    """The parts, null where they are just those of the items."""
    items = [part.get("native") for part in described]
    same = all(isinstance(item, dict) for item in items) and tuple(parts) == parts_of(items)
    return None if same else parts


def _part(where: str, value: JsonValue, refusal: JsonValue) -> Part:
    if not isinstance(value, dict):
        raise ArchiveError(f"{where}: want an object")
    kind, native = value.get("kind"), value.get("native")
    if kind == "tool_call":
        for field in ("id", "name", "arguments"):
            if not isinstance(value.get(field), str):
                raise ArchiveError(f"{where}.{field}: want a string")
        return ToolCallPart(value["id"], value["name"], value["arguments"])
    if kind not in ("text", "reasoning"):
        raise ArchiveError(f"{where}.kind: want text, reasoning or tool_call")
    text = value.get("text")
    if not isinstance(text, str):
        raise ArchiveError(f"{where}.text: want a string")
    if kind == "reasoning":
        return ReasoningPart(text)
    (derived,) = parts_of([native]) if isinstance(native, dict) else (None,)
    if isinstance(derived, HostedPart) and not text:
        return derived
    if refusal is None and isinstance(derived, TextPart):
        refusal = derived.refusal
    return TextPart(text, _text(refusal))


def _scope(value: JsonValue) -> ReplayScope | None:
    """The scope of an envelope, null for the scope of some other client, to which nothing is exact here."""
    try:
        return ReplayScope.parse(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None
