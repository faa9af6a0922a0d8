"""Redaction: body fields that must never reach a disk are replaced before the line is made.

A path is a small JSON path: `request.messages[*].content`, `$.response.choices[0].message.content`, `request.metadata.*`, `request..api_key` (a field of
that name at any depth). The first step is `request` or `response`.

Raw text cannot be redacted by path, so a record whose request (response) paths are configured keeps no raw form of that body, and with any path no message of an
exception, which may quote either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from otel_gym.errors import SettingsError

REDACTED: Final = "[redacted]"

_STEP: Final = re.compile(
    r"(?P<deep>\.\.)(?P<deep_name>[^.\[\]]+)|\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+|\*)\]|\[(?P<quote>['\"])(?P<quoted>.*?)(?P=quote)\]"
)
_RAW: Final = {
    "request": ("request_raw", "request_raw_b64"),
    "response": ("response_raw", "response_raw_b64", "unmerged", "stream_usage_chunk"),
}

_Step = tuple[str, str | int]


class Redactor:
    """Replaces the fields at some paths."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Raises `SettingsError` for a path that cannot be read."""
        self._paths = [(path, _parse(path)) for path in paths]
        self._raw = {key for _, steps in self._paths for key in _RAW[str(steps[0][1])]}

    def __bool__(self) -> bool:
        return bool(self._paths)

    def apply(self, raw: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """(the record with its fields replaced and the paths that matched in `redacted`, whether any matched).

        The given record is not changed.
        """
        record: Any = dict(raw)
        matched = []
        for path, steps in self._paths:
            try:
                changed = _replace(record, steps)
            except RecursionError:  # nested beyond reason: the whole body goes
                changed = {**record, str(steps[0][1]): REDACTED}
            if changed is not None:
                record = changed
                matched.append(path)
        for key in self._raw & record.keys():
            if record[key] is not None:
                record[key] = REDACTED
                matched.append(key)
        exception = record.get("exception")
        if self._paths and isinstance(exception, Mapping) and exception.get("message"):
            record["exception"] = {**exception, "message": REDACTED}
            matched.append("exception.message")
        if matched:
            record["redacted"] = sorted(matched)
        return record, bool(matched)


def _parse(path: str) -> list[_Step]:
    text = path.removeprefix("$")
    if not text.startswith((".", "[")):
        text = "." + text
    steps: list[_Step] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise SettingsError(
                f"capture_redact: {path!r} is not a JSON path such as request.messages[*].content"
            )
        at = match.end()
        if match["deep"]:
            steps.append(("deep", match["deep_name"]))
        elif match["index"] is not None:
            index = match["index"]
            steps.append(("all", "*") if index == "*" else ("index", int(index)))
        else:
            name = match["name"] or match["quoted"] or ""
            steps.append(("all", "*") if name == "*" else ("name", name))
    if len(steps) < 2 or steps[0] not in (("name", "request"), ("name", "response")):
        raise SettingsError(
            f"capture_redact: {path!r} must begin with request or response and name a field in it"
        )
    return steps


def _replace(value: Any, steps: Sequence[_Step]) -> Any | None:
    """A copy of `value` with what the steps lead to replaced; null where they lead nowhere."""
    if not steps:
        return None if value is None else REDACTED
    kind, name = steps[0]
    rest = steps[1:]
    if kind == "deep":
        return _replace_deep(value, str(name), rest)
    if isinstance(value, Mapping):
        if kind == "all":
            return _each(value, list(value), lambda item: _replace(item, rest))
        return _each(value, [name] if name in value else [], lambda item: _replace(item, rest))
    if isinstance(value, list):
        if kind == "all":
            return _each(value, range(len(value)), lambda item: _replace(item, rest))
        if kind == "index" and int(name) < len(value):
            return _each(value, [int(name)], lambda item: _replace(item, rest))
    return None


def _replace_deep(value: Any, name: str, rest: Sequence[_Step]) -> Any | None:
    here = value
    changed = None
    if isinstance(value, Mapping) and name in value:
        changed = _each(value, [name], lambda item: _replace(item, rest))
        here = value if changed is None else changed
    if isinstance(here, Mapping):
        below = _each(here, [k for k in here if k != name], lambda v: _replace_deep(v, name, rest))
    elif isinstance(here, list):
        below = _each(here, range(len(here)), lambda v: _replace_deep(v, name, rest))
    else:
        below = None
    return changed if below is None else below


def _each(value: Any, keys: Any, change: Callable[[Any], Any | None]) -> Any | None:
    copy: Any = None
    for key in keys:
        changed = change(value[key])
        if changed is not None:
            if copy is None:
                copy = dict(value) if isinstance(value, Mapping) else list(value)
            copy[key] = changed
    return copy
