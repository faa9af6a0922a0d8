"""Request, response, stream and line of a call, as they stand in the record."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

KINDS: Final = ("request", "response", "stream", "line")


@dataclass(frozen=True, slots=True)
class Body:
    """One body."""

    data: bytes
    media_type: str
    note: str = ""
    """What a reader should know: that it was cut, or is still encoded."""


def bodies(raw: Mapping[str, Any], line: bytes) -> dict[str, Body]:
    """Every body that the record has, by its kind. `stream` is the text as it went over the wire."""
    found: dict[str, Body] = {}
    for name in ("request", "response"):
        value = raw.get(name)
        if isinstance(value, (dict, list)):
            found[name] = Body(orjson.dumps(value, option=orjson.OPT_INDENT_2), "application/json")
        text = _text(raw, name)
        if text is None:
            continue
        kind = "stream" if name == "response" else "request"
        if kind in found:
            continue
        if name == "response" and "response" not in found and raw.get("stream") is None:
            kind = "response"
        found[kind] = Body(text, "text/plain", _note(raw, name))
    found["line"] = Body(line, "application/json")
    return found


def _text(raw: Mapping[str, Any], name: str) -> bytes | None:
    if isinstance(text := raw.get(f"{name}_raw"), str):
        return text.encode("utf-8", "backslashreplace")
    if isinstance(encoded := raw.get(f"{name}_raw_b64"), str):
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return encoded.encode()
    return None


def _note(raw: Mapping[str, Any], name: str) -> str:
    notes = []
    if isinstance(encoding := raw.get(f"{name}_raw_encoding"), str):
        notes.append(f"still encoded as {encoding[:40]}")
    if isinstance(cut := raw.get(f"{name}_cut"), dict):
        notes.append(f"cut: the whole had {cut.get('size_bytes')} bytes")
    return ", ".join(notes)
