"""Tool calls of a Chat Completions stream, put together by index, by id, or by order."""

from __future__ import annotations

import re
from typing import Any

from otel_gym.dialects.merge import Conflict, Pieces, add_delta, settle


class ToolCalls:
    """The tool calls of one message while they grow.

    A delta belongs to the call with its `index`; without one to the call with its id; without either to
    the last call, unless it brings a name to a call that already has one and whose arguments are whole.
    A second id under one index begins another call, and so does, where no id tells, another name or another object of
    arguments after whole ones: some servers number every call 0.
    """

    __slots__ = ("_by_id", "_by_index", "_calls", "_conflict", "_wholeness")

    def __init__(self, conflict: Conflict) -> None:
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[int, dict[str, Any]] = {}
        self._by_id: dict[str, dict[str, Any]] = {}
        self._wholeness: dict[int, _Wholeness] = {}
        self._conflict = conflict

    def add(self, deltas: list[Any]) -> None:
        """Take the `tool_calls` of one delta; null entries are skipped."""
        for delta in deltas:
            if delta.__class__ is dict:
                self._add(delta)
            elif delta is not None:
                self._conflict("tool_calls", delta)

    def numbered(self, index: object) -> dict[str, Any] | None:
        """The call that a delta with this index, and without an id, belongs to; null where it would change more than that call."""
        if index.__class__ is not int:
            return None
        call = self._by_index.get(index)
        if call is None:
            return None
        identity = call.get("id")
        if identity.__class__ is str and identity and self._by_id.get(identity) is not call:
            return None
        return call

    def calls(self) -> list[dict[str, Any]]:
        """The calls in the order of their index, or of their arrival where there is none.

        The index itself is left out where it is the position, as in a response that was not streamed.
        """
        numbered = all(call.get("index").__class__ is int for call in self._calls)
        calls = sorted(self._calls, key=lambda call: call["index"]) if numbered else self._calls
        for position, call in enumerate(calls):
            if call.get("index") == position:
                del call["index"]
        return calls

    def _add(self, delta: dict[str, Any]) -> None:
        call = self._find(delta)
        for key, value in delta.items():
            if key == "index":
                if value is not None:
                    call.setdefault("index", value)
            elif key in ("function", "custom") and value.__class__ is dict:
                if call.get(key) is None:
                    call[key] = {}
                add_named(call[key], value, self._conflict)
            elif key == "id" and value == "":
                call.setdefault("id", "")
            else:
                add_delta(call, key, value, self._conflict)
        identity = call.get("id")
        if identity.__class__ is str and identity:
            self._by_id[identity] = call

    def _find(self, delta: dict[str, Any]) -> dict[str, Any]:
        index, identity = delta.get("index"), delta.get("id")
        has_id = identity.__class__ is str and identity != ""
        if index.__class__ is int:
            call = self._by_index.get(index)
            if call is not None and has_id and call.get("id") not in (None, "", identity):
                call = self._by_id.get(identity)  # type: ignore[arg-type]
            elif call is not None and not has_id and self._is_another(call, delta):
                call = None
            if call is None:
                call = self._new()
            self._by_index[index] = call
            return call
        if has_id:
            return self._by_id.get(identity) or self._new()  # type: ignore[arg-type]
        if self._calls and not self._is_whole_before(self._calls[-1], delta):
            return self._calls[-1]
        return self._new()

    def _is_another(self, call: dict[str, Any], delta: dict[str, Any]) -> bool:
        """Whether a delta with the call's index, but no id, is of another call nevertheless."""
        function, known = delta.get("function"), call.get("function")
        if function.__class__ is not dict or known.__class__ is not dict:
            return False
        name, arguments = function.get("name"), function.get("arguments")
        if not name or name.__class__ is not str:
            return False
        if not self._is_whole_before(call, delta):
            return False
        begins = arguments.__class__ is str and arguments.lstrip()[:1] in ("{", "[")
        return begins or name != settle(known.get("name"))

    def _is_whole_before(self, call: dict[str, Any], delta: dict[str, Any]) -> bool:
        """Whether a delta brings a name to a call that has one, and whose arguments are whole."""
        for key in ("function", "custom"):
            part, last = delta.get(key), call.get(key)
            if part.__class__ is dict and part.get("name"):
                if last.__class__ is not dict or not last.get("name"):
                    return False
                arguments = last.get("arguments", last.get("input"))
                return self._wholeness.setdefault(id(call), _Wholeness()).whole(arguments)
        return False

    def _new(self) -> dict[str, Any]:
        call: dict[str, Any] = {}
        self._calls.append(call)
        return call


def add_named(target: dict[str, Any], delta: dict[str, Any], conflict: Conflict) -> None:
    """Add to a function: arguments grow; a name grows too, unless it is the same name once more."""
    for key, value in delta.items():
        if key == "name" and value.__class__ is str:
            have = target.get("name")
            if have.__class__ is not Pieces:
                target["name"] = Pieces((value,))
            elif value and (len(have) > 1 or have[0] != value):
                have.append(value)
        else:
            add_delta(target, key, value, conflict)


class _Wholeness:
    """Whether the growing JSON of a call's arguments is whole; looks at every piece once."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_seen", "_started")

    def __init__(self) -> None:
        self._seen = 0
        self._depth = 0
        self._in_string = self._escaped = self._started = False

    def whole(self, pieces: Any) -> bool:
        """Whether the pieces so far are one JSON object or array."""
        if pieces.__class__ is not Pieces:
            return False
        for piece in pieces[self._seen :]:
            self._look_at(piece)
        self._seen = len(pieces)
        return self._started and self._depth <= 0 and not self._in_string

    def _look_at(self, piece: str) -> None:
        end = 0
        for match in _STRUCTURE.finditer(piece):
            character = match.group()
            if self._escaped and match.start() == end:
                self._escaped = False
                end = match.end()
                continue
            self._escaped = False
            if character == "\\":
                self._escaped = self._in_string
            elif character == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if character in "{[" else -1
                self._started = True
            end = match.end()
        if end < len(piece):
            self._escaped = False


_STRUCTURE = re.compile(r'["\\{}\[\]]')
