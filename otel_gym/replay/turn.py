"""One turn of the policy: what it said, and the exact items it said it in."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from typing import Any, Final

from otel_gym.replay.columns import ARRAY_FIELDS, Column
from otel_gym.replay.json_values import JsonValue, dump_json
from otel_gym.replay.native import NativeItems
from otel_gym.replay.parts import (
    CLIENT_EXECUTED,
    FUNCTION_CALL,
    HostedPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    part_from_json,
    part_to_json,
    parts_of,
    public_words,
)
from otel_gym.replay.response_facts import ResponseFacts
from otel_gym.replay.scope import ReplayScope

_BUNDLE: Final = ARRAY_FIELDS[:3]


class Turn:
    """Immutable. Made by `capture_turn`, by `restore`, or from parts alone for a turn without native items.

    `native_items` is null once the turn was edited; `scope` is null where the policy is not known.
    """

    __slots__ = ("_digest", "_parts", "_skeleton", "facts", "native_items", "scope")

    facts: ResponseFacts
    native_items: NativeItems | None
    scope: ReplayScope | None
    _parts: tuple[Part, ...] | None
    _skeleton: list[dict[str, Any]] | None
    _digest: str | None

    def __init__(
        self,
        *,
        parts: Iterable[Part] | None = None,
        native_items: NativeItems | None = None,
        scope: ReplayScope | None = None,
        facts: ResponseFacts | None = None,
    ) -> None:
        if parts is None and native_items is None:
            raise ValueError("a turn needs parts, native items or both")
        self._set("native_items", native_items)
        self._set("scope", scope)
        self._set("facts", facts if facts is not None else ResponseFacts())
        self._set("_parts", None if parts is None else tuple(parts))
        self._set("_skeleton", None)
        self._set("_digest", None)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Turn is immutable; cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Turn is immutable; cannot delete {name!r}")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The ordered public parts."""
        return self._parts if self._parts is not None else self._native_parts()

    @property
    def own_parts(self) -> tuple[Part, ...] | None:
        """The parts where they are kept apart from the native items, else null."""
        return self._parts

    @property
    def content(self) -> str:
        """The assistant's text: exactly what structured output is parsed from."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        """The readable reasoning: the non-empty reasoning parts, one a line."""
        texts = (part.text for part in self.parts if isinstance(part, ReasoningPart))
        return "\n".join(text for text in texts if text)

    @property
    def refusal(self) -> str | None:
        """The words of a refusal, null where the model did not refuse."""
        found = [
            part.refusal
            for part in self.parts
            if isinstance(part, TextPart) and part.refusal is not None
        ]
        return "".join(found) if found else None

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The function calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    @property
    def unsupported_calls(self) -> tuple[str, ...]:
        """The types of client-executed calls that the client cannot execute, in order.

        A `function_call` is among them where it lacks its call id, name or argument string.
        """
        return tuple(
            part.item_type
            for part in self.parts
            if isinstance(part, HostedPart)
            and (part.item_type in CLIENT_EXECUTED or part.item_type == FUNCTION_CALL)
        )

    @property
    def finish_reason(self) -> str | None:
        return self.facts.finish_reason

    @property
    def usage(self) -> dict[str, Any] | None:
        """The response's usage object as it came; a copy."""
        return copy.deepcopy(self.facts.usage)

    @property
    def native(self) -> list[dict[str, Any]] | None:
        """The complete output items as plain JSON values, made anew each time; null once edited."""
        return None if self.native_items is None else self.native_items.values()

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of everything the turn holds; equal turns have equal digests."""
        if self._digest is None:
            native = self.native_items
            digest = hashlib.sha256(dump_json(self.description()))
            if native is not None:
                digest.update(b"\0" + native.head)
                for column in native.columns:
                    digest.update(f"\0{column.dtype}{column.shape}{column.digest}".encode())
            self._set("_digest", digest.hexdigest())
        assert self._digest is not None
        return self._digest

    def replace_text(self, text: str) -> Turn:
        """A turn that says `text` instead: the first text part takes it and the others go.

        Where there was none it comes last. Native items, scope and response facts are dropped.
        """
        parts: list[Part] = []
        placed = False
        for part in self.parts:
            if not isinstance(part, TextPart):
                parts.append(part)
            elif not placed:
                parts.append(TextPart(text))
                placed = True
        if not placed:
            parts.append(TextPart(text))
        return self.replace_parts(parts)

    def replace_parts(self, parts: Iterable[Part]) -> Turn:
        """A turn with these parts. Native items, scope and response facts are dropped."""
        return Turn(parts=parts)

    def replace_scope(self, scope: ReplayScope | None) -> Turn:
        """This turn where the scope is equal; else its words alone, without native items and scope.

        A scope says which policy made the items, so it can be lost but never changed.
        """
        return self if scope == self.scope else self.replace_parts(self.parts)

    def agrees(self) -> bool:
        """Whether the public parts are those of the native items; false where there are none."""
        if self.native_items is None:
            return False
        if self._parts is None:
            return True
        return public_words(self._parts) == public_words(self._native_parts())

    def has_whole_bundles(self) -> bool:
        """Whether each item that carries token metadata carries the three arrays that belong together.

        A null value counts as absent; an empty list counts as present.
        """
        return all(_bundle_is_whole(item, self) for item in self._items())

    @property
    def item_count(self) -> int:
        """The count of native items, 0 where there are none."""
        return len(self._items())

    def columns_of(self, index: int) -> dict[str, Column]:
        """The columns of one native item, by field; lists that stayed JSON are not among them."""
        native = self.native_items
        if native is None:
            return {}
        item = self._items()[index]
        found = ((field, native.column_of(item.get(field))) for field in ARRAY_FIELDS)
        return {field: column for field, column in found if column is not None}

    def description(self) -> JsonValue:
        """The turn without its native items, as a JSON value."""
        facts = self.facts
        return {
            "scope": None if self.scope is None else str(self.scope),
            "facts": {
                "response_id": facts.response_id,
                "model": facts.model,
                "status": facts.status,
                "finish_reason": facts.finish_reason,
                "usage": facts.usage,
            },
            "parts": None if self._parts is None else [part_to_json(p) for p in self._parts],
        }

    def _items(self) -> list[dict[str, Any]]:
        if self._skeleton is None:
            native = self.native_items
            self._set("_skeleton", [] if native is None else native.skeleton())
        assert self._skeleton is not None
        return self._skeleton

    def _native_parts(self) -> tuple[Part, ...]:
        return parts_of(self._items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Turn):
            return NotImplemented
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        kinds = ", ".join(part.kind for part in self.parts)
        native = "native" if self.native_items is not None else "portable"
        return f"<Turn {native} [{kinds}]>"


def turn_from_description(
    value: JsonValue, native_items: NativeItems | None, *, digest: str | None = None
) -> Turn:
    """The turn that `description()` was taken from; KeyError, TypeError or ValueError for anything else.

    `digest` is the turn's own digest where it is known already.
    """
    parts, scope = value["parts"], value["scope"]
    turn = Turn(
        parts=None if parts is None else [part_from_json(part) for part in parts],
        native_items=native_items,
        scope=None if scope is None else ReplayScope.parse(scope),
        facts=ResponseFacts.stored(value["facts"]),
    )
    if not isinstance(digest, str | None):
        raise ValueError("the digest of a turn is no text")
    turn._set("_digest", digest)
    return turn


def _bundle_is_whole(item: dict[str, Any], turn: Turn) -> bool:
    if all(item.get(field) is None for field in ARRAY_FIELDS):
        return True
    native = turn.native_items
    assert native is not None
    return all(
        isinstance(item.get(field), list) or native.column_of(item.get(field)) is not None
        for field in _BUNDLE
    )
