"""Merging of JSON values that arrive in pieces; the same rules for known and unknown fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

IDENTITIES = frozenset(
    {"id", "type", "role", "object", "model", "status", "format", "phase", "call_id", "signature"}
)
"""Strings of a delta that name something: set once and never concatenated."""

_LOOK_BACK = 256
"""Entries of a list among which one with the same index is looked for."""

Conflict = Callable[[str, object], None]


class Pieces(list[str]):
    """Text that is still growing; `settle` joins it."""

    __slots__ = ()


def settle(value: Any) -> Any:
    """The value with all growing text joined; dictionaries and lists are changed in place."""
    if value.__class__ is Pieces:
        return "".join(value)
    if value.__class__ is dict:
        for key, item in value.items():
            if item.__class__ in _GROWING:
                value[key] = settle(item)
    elif value.__class__ is list:
        for position, item in enumerate(value):
            if item.__class__ in _GROWING:
                value[position] = settle(item)
    return value


_GROWING = (Pieces, dict, list)


def add_delta(target: dict[str, Any], key: str, value: Any, conflict: Conflict) -> None:
    """Add one field of a delta: text is appended, lists are extended, objects merged, null changes
    nothing, an identity is set once, any other scalar is replaced.

    A value that cannot be added to what is there goes to `conflict(key, value)`.
    """
    have = target.get(key)
    kind = value.__class__
    if kind is str:
        if have.__class__ is Pieces:
            have.append(value)
        elif have is None:
            target[key] = value if key in IDENTITIES else Pieces((value,))
        elif have.__class__ is str:
            if value and value != have:
                if have == "":
                    target[key] = value
                else:
                    conflict(key, value)
        elif have.__class__ is list:
            if value:
                add_part(have, {"type": "text", "text": value}, conflict)
        else:
            conflict(key, value)
    elif value is None:
        target.setdefault(key, None)
    elif kind is dict:
        if have is None:
            have = target[key] = {}
        if have.__class__ is dict:
            for name, item in value.items():
                add_delta(have, name, item, lambda at, it: conflict(f"{key}.{at}", it))
        else:
            conflict(key, value)
    elif kind is list:
        if have is None:
            have = target[key] = []
        elif have.__class__ is Pieces:
            text = "".join(have)
            have = target[key] = [{"type": "text", "text": Pieces((text,))}] if text else []
        if have.__class__ is not list:
            conflict(key, value)
            return
        for item in value:
            add_item(have, item, conflict, coalesce=key in ("content", "thinking"))
    else:
        target[key] = value


def add_item(items: list[Any], item: Any, conflict: Conflict, *, coalesce: bool) -> None:
    """Add one entry of a list delta: merged with the entry of the same `index` (and type, where both
    have one), else with the part before it where parts coalesce, else appended.
    """
    if item.__class__ is dict:
        index = item.get("index")
        if index.__class__ is int:
            for known in items[: -_LOOK_BACK - 1 : -1]:
                if (
                    known.__class__ is dict
                    and known.get("index") == index
                    and known.get("type") == item.get("type")
                ):
                    for name, value in item.items():
                        if name != "index":
                            add_delta(known, name, value, conflict)
                    return
        elif coalesce:
            add_part(items, item, conflict)
            return
        fresh: dict[str, Any] = {}
        for name, value in item.items():
            add_delta(fresh, name, value, conflict)
        items.append(fresh)
    else:
        items.append(item)


def add_part(parts: list[Any], part: dict[str, Any], conflict: Conflict) -> None:
    """Add a content part: text grows the part before it where that has the same type and fields."""
    kind = part.get("type")
    last = parts[-1] if parts else None
    if kind not in ("text", "thinking") or set(part) != {"type", kind}:
        parts.append(dict(part))
        return
    if last.__class__ is not dict or last.get("type") != kind or set(last) != {"type", kind}:
        last = {"type": kind}
        parts.append(last)
    add_delta(last, kind, part[kind], conflict)


def fill(target: dict[str, Any], source: dict[str, Any]) -> None:
    """Give `target` what it lacks: fields that are absent, null or empty there and not in `source`."""
    for key, value in source.items():
        have = target.get(key)
        if have is None or have == "" or have == [] or have == {}:
            if value is not None or key not in target:
                target[key] = value
        elif have.__class__ is dict and value.__class__ is dict:
            fill(have, value)
        elif have.__class__ is list and value.__class__ is list:
            for mine, theirs in zip(have, value, strict=False):
                if mine.__class__ is dict and theirs.__class__ is dict:
                    fill(mine, theirs)
