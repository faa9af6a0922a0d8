"""Turns inside the message lists of a chat framework that knows no turns.

Such a framework keeps an assistant's tool calls as messages of its own making, and beside them, unread, a
list of `reasoning_items` that it was given. A carrier in that list holds the whole turn. When the messages
come back, a carried turn takes the place of the messages it stands for, if they still say the same; if
they were edited, cut or reordered, the public messages are what counts, and the turn becomes portable.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_gym.replay.container import HistoryEntry, restore, snapshot
from otel_gym.replay.errors import ContainerError, PreparationError
from otel_gym.replay.json_values import JsonValue, load_json
from otel_gym.replay.parts import ToolCallPart
from otel_gym.replay.turn import Turn

CARRIER_TYPE: Final = "otel_gym_turn"
_LIST: Final = "reasoning_items"


def carrier(turn: Turn) -> dict[str, Any]:
    """A JSON object that holds a turn."""
    container = base64.b64encode(snapshot([turn])).decode("ascii")
    return {"type": CARRIER_TYPE, "container": container}


def history_of(messages: Sequence[Mapping[str, Any]]) -> list[HistoryEntry]:
    """The history that a message list stands for. `PreparationError` names a carrier that is damaged."""
    history: list[HistoryEntry] = []
    taken: set[int] = set()
    for index, message in enumerate(messages):
        if index in taken:
            continue
        turn = _carried(index, message)
        if turn is None:
            history.append(dict(message))
            continue
        covered = _covered(messages, index, turn)
        if covered is None:
            history.append(_portable(message, turn))
        else:
            history.append(turn)
            taken |= covered
    return history


def _carried(index: int, message: Mapping[str, Any]) -> Turn | None:
    items = message.get(_LIST)
    if message.get("role") != "assistant" or not isinstance(items, list):
        return None
    for item in items:
        if isinstance(item, Mapping) and item.get("type") == CARRIER_TYPE:
            try:
                (turn,) = restore(base64.b64decode(item["container"], validate=True))
            except (ContainerError, KeyError, TypeError, ValueError, binascii.Error) as error:
                raise PreparationError(
                    index, _LIST, f"a carried turn is damaged: {error}"
                ) from error
            if not isinstance(turn, Turn):
                raise PreparationError(index, _LIST, "a carrier holds no turn")
            return turn
    return None


def _covered(messages: Sequence[Mapping[str, Any]], start: int, turn: Turn) -> set[int] | None:
    """The messages that a turn stands for: its calls, each before its output; null where they differ."""
    expected = list(turn.tool_calls)
    covered: set[int] = set()
    for index in range(start, len(messages)):
        message = messages[index]
        if not expected:
            break
        if message.get("role") == "tool":
            continue
        calls = _public_calls(message)
        if not calls or message.get("content") or (index > start and message.get(_LIST)):
            return None
        for call in calls:
            if not expected or not _same_call(call, expected.pop(0)):
                return None
        covered.add(index)
    return covered if covered and not expected else None


def _public_calls(message: Mapping[str, Any]) -> list[ToolCallPart]:
    calls = message.get("tool_calls")
    if message.get("role") != "assistant" or not isinstance(calls, list):
        return []
    found = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            return []
        values = (call.get("id"), function.get("name"), function.get("arguments"))
        if not all(isinstance(value, str) for value in values):
            return []
        found.append(ToolCallPart(*values))  # type: ignore[arg-type]  # just seen to be strings
    return found


def _same_call(public: ToolCallPart, native: ToolCallPart) -> bool:
    """Whether two calls are one: the framework writes arguments anew, so their values count."""
    if (public.id, public.name) != (native.id, native.name):
        return False
    if public.arguments == native.arguments:
        return True
    try:
        values: list[JsonValue] = [load_json(call.arguments) for call in (public, native)]
    except ValueError:
        return False
    return repr(values[0]) == repr(values[1])  # 1 is not 1.0, and true is not 1


def _portable(message: Mapping[str, Any], turn: Turn) -> Turn:
    """What a message says in public, as an edited turn: the carried words before it, and its own calls."""
    spoken = [part for part in turn.parts if not isinstance(part, ToolCallPart)]
    return turn.replace_parts([*spoken, *_public_calls(message)])
