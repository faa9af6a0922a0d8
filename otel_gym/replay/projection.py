"""A history as the input of the next policy call: exact where it may be, portable where it must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, Final

from otel_gym.replay.columns import Piece, collector_paused
from otel_gym.replay.container import HistoryEntry
from otel_gym.replay.errors import PreparationError
from otel_gym.replay.gaps import FOREIGN_TURN, PUBLIC_ASSISTANT
from otel_gym.replay.json_values import dump_json, load_json
from otel_gym.replay.native import NativeItems
from otel_gym.replay.parts import ReasoningPart, TextPart, ToolCallPart
from otel_gym.replay.scope import ReplayScope
from otel_gym.replay.turn import Turn

_ROLES: Final = ("assistant", "developer", "system", "tool", "user")


class Projection:
    """What `project` gives. `gaps` is a frozen set of codes of `otel_gym.replay.gaps`.

    `instructions` is the system messages joined by a blank line, null where there were none.
    """

    __slots__ = ("_segments", "gaps", "instructions")

    def __init__(
        self,
        segments: Sequence[NativeItems | bytes],
        instructions: str | None,
        gaps: frozenset[str],
    ) -> None:
        self._segments = tuple(segments)
        self.instructions = instructions
        self.gaps = gaps

    @property
    def items(self) -> list[dict[str, Any]]:
        """The input items as plain JSON values, made anew each time."""
        items: list[dict[str, Any]] = []
        with collector_paused():
            for segment in self._segments:
                if isinstance(segment, NativeItems):
                    items.extend(segment.values())
                else:
                    items.append(load_json(segment))
        return items

    def to_json(self) -> bytes:
        """The JSON text of the input items as it goes over the wire; no list is made of any array."""
        # Not a join: it would keep every piece until the end, in memory that is touched for the first time.
        text = BytesIO()
        text.writelines(self.json_pieces())
        return text.getvalue()

    def json_pieces(self) -> Iterator[Piece]:
        """The same text in pieces of at most one column."""
        separator = b"["
        for segment in self._segments:
            if not isinstance(segment, NativeItems):
                yield separator
                yield segment
            elif segment.head == b"[]":
                continue
            else:
                yield separator
                yield from _inside(segment)
            separator = b","
        yield b"]" if separator == b"," else b"[]"


def project(history: Sequence[HistoryEntry], scope: ReplayScope | None) -> Projection:
    """The input for the policy that `scope` names; null replays nothing exactly.

    Raises `PreparationError` naming the entry and field of a malformed history, before anything is sent.
    """
    segments: list[NativeItems | bytes] = []
    instructions: list[str] = []
    gaps: set[str] = set()
    for index, entry in enumerate(history):
        if isinstance(entry, Turn):
            if is_exact(entry, scope):
                assert entry.native_items is not None
                segments.append(entry.native_items)
            else:
                gaps.add(FOREIGN_TURN)
                segments += [_text(index, item) for item in portable_items(entry)]
        elif isinstance(entry, Mapping):
            role = _check(index, entry)
            if role == "assistant" or _only_a_model_writes(entry.get("type")):
                gaps.add(PUBLIC_ASSISTANT)
            if role == "system" and "type" not in entry:
                instructions.append(_system_text(index, entry))
            else:
                segments += [_text(index, item) for item in _message_items(index, entry)]
        else:
            raise PreparationError(index, "type", f"a {type(entry).__name__} is no history entry")
    joined = "\n\n".join(instructions) if instructions else None
    return Projection(segments, joined, frozenset(gaps))


def is_exact(turn: Turn, scope: ReplayScope | None) -> bool:
    """Whether a turn may be replayed to the policy of `scope` as the very items it came in."""
    return (
        scope is not None
        and turn.scope == scope
        and turn.native_items is not None
        and turn.agrees()
        and turn.has_whole_bundles()
    )


def portable_items(turn: Turn) -> list[dict[str, Any]]:
    """A turn's ordered public text and calls as input items; parts without text leave nothing."""
    items: list[dict[str, Any]] = []
    for part in turn.parts:
        if isinstance(part, ToolCallPart):
            items.append(_call(part.id, part.name, part.arguments))
        elif isinstance(part, TextPart | ReasoningPart) and part.text:
            items.append({"role": "assistant", "content": part.text})
    return items


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def _only_a_model_writes(kind: object) -> bool:
    """Whether items of a type come from a policy: reasoning and every kind of call."""
    return isinstance(kind, str) and (kind == "reasoning" or kind.endswith("_call"))


def _check(index: int, entry: Mapping[str, Any]) -> str | None:
    """The entry's role, null for a typed item without one."""
    kind, role = entry.get("type"), entry.get("role")
    if "type" in entry and (not isinstance(kind, str) or not kind):
        raise PreparationError(index, "type", "want a non-empty string")
    if kind is None or kind == "message":
        if not isinstance(role, str) or role not in _ROLES:
            raise PreparationError(index, "role", f"want one of {', '.join(_ROLES)}")
        return role
    _check_item(index, kind, entry)
    return role if isinstance(role, str) else None


def _check_item(index: int, kind: str, entry: Mapping[str, Any]) -> None:
    wanted = {
        "function_call": ("call_id", "name", "arguments"),
        "function_call_output": ("call_id",),
    }.get(kind, ())
    for field in wanted:
        if not isinstance(entry.get(field), str):
            raise PreparationError(index, field, f"want a string, not {_kind(entry.get(field))}")
    if kind == "function_call_output" and not isinstance(entry.get("output"), str | list):
        raise PreparationError(index, "output", "want a string or a list of blocks")


def _message_items(index: int, entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "type" in entry:
        if entry["type"] == "message":
            _check_content(index, entry, optional=False)
        yield entry
        return
    role = entry["role"]
    if role == "tool":
        call_id = entry.get("tool_call_id")
        if not isinstance(call_id, str) or not call_id:
            raise PreparationError(index, "tool_call_id", f"want a call id, not {_kind(call_id)}")
        _check_content(index, entry, optional=False)
        yield {"type": "function_call_output", "call_id": call_id, "output": entry["content"]}
        return
    calls = entry.get("tool_calls")
    if role != "assistant" or not calls:
        _check_content(index, entry, optional=False)
        yield entry if role != "assistant" else {"role": role, "content": entry["content"]}
        return
    _check_content(index, entry, optional=True)
    if entry.get("content"):
        yield {"role": role, "content": entry["content"]}
    if not isinstance(calls, list):
        raise PreparationError(index, "tool_calls", f"want a list, not {_kind(calls)}")
    for position, call in enumerate(calls):
        yield _chat_call(index, position, call)


def _chat_call(index: int, position: int, call: object) -> dict[str, Any]:
    """A Chat Completions tool call, nested (`function`) or flat, as a function_call item."""
    field = f"tool_calls[{position}]"
    if not isinstance(call, Mapping):
        raise PreparationError(index, field, "want an object")
    function = call.get("function", call)
    if not isinstance(function, Mapping):
        raise PreparationError(index, f"{field}.function", "want an object")
    values = (call.get("id"), function.get("name"), function.get("arguments"))
    for name, value in zip(("id", "name", "arguments"), values, strict=True):
        if not isinstance(value, str):
            raise PreparationError(index, f"{field}.{name}", f"want a string, not {_kind(value)}")
    return _call(*values)  # type: ignore[arg-type]  # each was just seen to be a str


def _check_content(index: int, entry: Mapping[str, Any], *, optional: bool) -> None:
    content = entry.get("content")
    if isinstance(content, str) or (optional and content is None):
        return
    if not isinstance(content, list):
        raise PreparationError(
            index, "content", f"want text or a list of blocks, not {_kind(content)}"
        )
    for position, block in enumerate(content):
        if not isinstance(block, Mapping):
            raise PreparationError(index, f"content[{position}]", "want an object")


def _system_text(index: int, entry: Mapping[str, Any]) -> str:
    _check_content(index, entry, optional=False)
    content = entry["content"]
    if isinstance(content, str):
        return content
    texts = [block.get("text") for block in content]
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise PreparationError(index, f"content[{position}].text", "want a string")
    return "".join(texts)


def _kind(value: object) -> str:
    """What a wrong value is, for messages: never the value, which may be large or hostile."""
    return "null" if value is None else type(value).__name__


def _text(index: int, item: Mapping[str, Any]) -> bytes:
    try:
        return dump_json(dict(item))
    except ValueError as error:
        raise PreparationError(index, "content", str(error)) from error


def _inside(native: NativeItems) -> Iterator[Piece]:
    """The text of a list without its brackets, which begin and end its head."""
    held: Piece = b""
    for number, piece in enumerate(native.json_pieces()):
        yield held
        held = piece if number else piece[1:]
    yield held[:-1]
