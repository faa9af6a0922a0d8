"""What Chat Completions and Completions streams share: chunks with choices, merged by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_gym.dialects.merge import add_delta
from otel_gym.dialects.reading import EventAccumulator
from otel_gym.dialects.runs import Growth

Path = Callable[[Any], tuple[Any, str]]

_FIRST_STAYS = frozenset({"id", "object", "model", "created"})


class Choice:
    """One choice while it grows: its own fields, and its message (empty for Completions)."""

    __slots__ = ("fields", "message", "tools")

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.message: dict[str, Any] = {}
        self.tools: Any = None


class ChoicesAccumulator(EventAccumulator):
    """Merges chunks. What a chunk repeats of the one before it (nearly everything but its delta) costs one comparison."""

    meaningless = ("obfuscation",)
    """Random characters that hide the length of a chunk; they carry nothing and are left out."""
    object_names: tuple[str, str]
    """The `object` of a chunk and of the whole response."""
    growing: str
    """The field of a choice that every chunk continues."""
    also_growing: frozenset[str] = frozenset()
    """Other fields of a choice with text that chunks continue."""

    def __init__(self) -> None:
        super().__init__()
        self._top: dict[str, Any] = {}
        self._choices: dict[int, Choice] = {}
        self._chunks = False
        self._last_top: dict[str, Any] | None = None
        self._last_choice: dict[str, Any] | None = None
        self._last_slot = Choice()

    def merge(self, event: str, payload: dict[str, Any]) -> None:
        """Merge one chunk."""
        top = self._top
        if event == "error" and payload.get("error") is None and "choices" not in payload:
            self._error(payload)
            return
        self._chunks = True
        choices = payload.pop("choices", None)
        for key in self.meaningless:
            payload.pop(key, None)
        repeats = payload == self._last_top
        if choices.__class__ is list:
            alone = repeats and len(choices) == 1
            for position, choice in enumerate(choices):
                if choice.__class__ is dict:
                    self._choice(position, choice, alone)
                elif choice is not None:
                    self.conflict("choices", choice)
        elif choices is not None:
            self.conflict("choices", choices)
        if repeats:
            return
        self._last_top = payload
        for key, value in payload.items():
            if key in top:
                if value is not None and top[key] != value:
                    self._changed(key, value)
            elif key == "error" and value is not None:
                self._error(value)
            else:
                top[key] = value
        if payload.get("object") == "error" and self.error is None:
            self._error({k: v for k, v in payload.items() if k != "object"})

    def _error(self, error: object) -> None:
        if self.error is None:
            self.error = error
        elif self.error != error:
            self.conflict("error", error)

    def _changed(self, key: str, value: Any) -> None:
        """A top-level field that differs from the one of an earlier chunk."""
        have = self._top[key]
        if key == "error":
            self._error(value)
        elif have is None or have == "":
            self._top[key] = value
        elif have.__class__ is dict and value.__class__ is dict:
            _update(have, value)
        elif key in _FIRST_STAYS:
            if value != "" and key == "id":
                self.conflict(key, value)
        elif have.__class__ is list and value.__class__ is list:
            if value[: len(have)] != have:
                if have[: len(value)] == value:
                    return
                self.conflict(key, have)
            self._top[key] = value
        else:
            self._top[key] = value

    def _choice(self, position: int, choice: dict[str, Any], alone: bool) -> None:
        grown = choice.pop(self.growing, None)
        if choice == self._last_choice:
            if grown is not None:
                self.grow(self._last_slot, grown, alone)
            return
        slot = self._add_choice(position, choice)
        if grown is not None:
            self.grow(slot, grown, False)

    def grew(
        self,
        fields: dict[str, Any],
        key: str,
        text: str,
        path: Path,
        and_holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """Note that a growing field did nothing but append `text` to `fields[key]`, and would again while `and_holds`."""
        if not self.may_begin_run():
            return
        top, choice, target = self._last_top, self._last_choice, fields[key]
        self.growth = Growth(
            text,
            target,
            path,
            lambda: (
                self._last_top is top
                and self._last_choice is choice
                and fields.get(key) is target
                and and_holds()
            ),
        )

    def _add_choice(self, position: int, choice: dict[str, Any]) -> Choice:
        """Add the fields of a chunk's choice but the growing one."""
        index = choice.get("index")
        if index.__class__ is not int:
            index = position
        slot = self._choices.get(index)
        if slot is None:
            slot = self._choices[index] = Choice()
        fields = slot.fields
        says_nothing = True
        for key, value in choice.items():
            if value is None:
                if key not in fields:
                    fields[key] = None
                continue
            if key == "index":
                continue
            says_nothing = False
            if key in self.also_growing:
                add_delta(fields, key, value, self.conflict)
                continue
            have = fields.get(key)
            if have is None or have == "":
                fields[key] = value
            elif key == "logprobs" or key == "token_ids" or key == "routed_experts":
                self._extend(fields, key, value)
            elif value == have or value == "":
                continue
            elif have.__class__ is dict and value.__class__ is dict:
                _update(have, value)
            elif have.__class__ is list and value.__class__ is list:
                self._extend(fields, key, value)
            else:
                if key == "finish_reason" or value.__class__ not in (int, float, bool):
                    self.conflict(f"choices[{index}].{key}", have)
                fields[key] = value
        if says_nothing and choice.get("index").__class__ is int:
            self._last_choice, self._last_slot = choice, slot
        return slot

    def _extend(self, fields: dict[str, Any], key: str, value: Any) -> None:
        """Append to a list, or to the lists inside an object, that every chunk continues."""
        have = fields[key]
        if have.__class__ is list and value.__class__ is list:
            have.extend(value)
        elif have.__class__ is dict and value.__class__ is dict:
            for name, item in value.items():
                mine = have.get(name)
                if mine.__class__ is list and item.__class__ is list:
                    mine.extend(item)
                elif item is None:
                    have.setdefault(name, None)
                elif mine is None:
                    have[name] = item
                else:
                    self._extend(have, name, item)
        elif have != value:
            self.conflict(key, value)

    def grow(self, slot: Choice, value: Any, alone: bool) -> None:
        """Add the growing field of a chunk's choice, which is `alone` where nothing else of the chunk is new; the dialect's own part."""
        raise NotImplementedError

    def settle_choice(self, slot: Choice) -> dict[str, Any]:
        """The finished fields of a choice, without its index and with no text that still grows."""
        raise NotImplementedError

    def result(self) -> dict[str, Any] | None:
        """The response as the non-streaming call would give it."""
        if not self._chunks and self.error is None:
            return None
        response = self._top
        chunk, whole = self.object_names
        if response.get("object") == chunk:
            response["object"] = whole
        usage = response.pop("usage", None) if "usage" in response else _ABSENT
        if self._chunks and (self._choices or self.error is None):
            response["choices"] = [
                {"index": index, **self.settle_choice(slot)}
                for index, slot in sorted(self._choices.items())
            ]
        if usage is not _ABSENT:
            response["usage"] = usage
        if self.error is not None:
            response["error"] = self.error
        return response


_ABSENT: Any = object()


def _update(have: dict[str, Any], value: dict[str, Any]) -> None:
    """Later values win; null changes nothing."""
    for key, item in value.items():
        mine = have.get(key)
        if mine.__class__ is dict and item.__class__ is dict:
            _update(mine, item)
        elif item is not None or key not in have:
            have[key] = item
