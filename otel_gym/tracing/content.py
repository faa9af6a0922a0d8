"""Message content on spans and events, where a person asked for it, within the span's budget.

On spans it is JSON text (what Phoenix and Jaeger's GenAI view read), on the event it is structured (what the convention wants). What does not fit is
replaced part by part, the largest first, by its digest, its size and a pointer to the record; the result is valid under the schemas all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from otel_gym.tracing.message_content import CallContent, call_content
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.span_data import Event, SpanData

if TYPE_CHECKING:
    from otel_gym.tracing.spans import RecordPlace

REFERENCE: Final = "otel_gym.reference"
"""Type of a part that stands for one that did not fit."""
DETAILS_EVENT: Final = "gen_ai.client.inference.operation.details"
CUT_BYTES: Final = "otel_gym.content.cut_bytes"
MAX_DEPTH: Final = 8
"""Levels of a structured value; what is deeper becomes JSON text, since receivers bound the nesting of messages."""

_FIELDS: Final = (
    ("output", "gen_ai.output.messages"),
    ("system", "gen_ai.system_instructions"),
    ("input", "gen_ai.input.messages"),
    ("tools", "gen_ai.tool.definitions"),
)
"""In the order in which they get their share of the budget."""
_REFERENCE_BYTES: Final = 512
"""More than a message takes that holds one reference."""
_EVENT_BYTES: Final = 1024
"""More than the event takes beside its content."""
_EVENT_KEYS: Final = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")


def add_content(
    span: SpanData,
    dialect: str,
    request: Mapping[str, Any],
    response: Mapping[str, Any],
    place: RecordPlace,
    options: SpanOptions,
) -> None:
    """Adds the content of a call to the span, to its event, or to both, within `options.span_max_bytes` in all."""
    content = call_content(dialect, request, response)
    openinference = options.content_on_span and "openinference" in options.semconv
    forms = options.content_on_span + options.content_on_event + openinference
    fixed_bytes = _attribute_bytes(span) + (_EVENT_BYTES if options.content_on_event else 0)
    left = max(0, options.span_max_bytes - fixed_bytes) // forms
    budget = _Budget(left, f"{place.file_name}#{place.offset_bytes}")
    fitted = budget.fit(content)
    texts = {name: orjson.dumps(value).decode() for name, value in fitted.items()}
    if options.content_on_span:
        span.attributes.update(texts)
        if openinference:
            for name, key in (
                ("input", "gen_ai.input.messages"),
                ("output", "gen_ai.output.messages"),
            ):
                if key in texts:
                    span.attributes[f"{name}.value"] = texts[key]
                    span.attributes[f"{name}.mime_type"] = "application/json"
    if options.content_on_event and fitted:
        details: dict[str, Any] = {
            key: span.attributes[key] for key in _EVENT_KEYS if key in span.attributes
        }
        details.update(_structured(fitted, texts, left))
        span.events.append(Event(DETAILS_EVENT, span.end_ns, details))
    if budget.cut_bytes:
        span.attributes[CUT_BYTES] = budget.cut_bytes


class _Budget:
    """Shares a number of bytes among the fields of a content."""

    def __init__(self, left_bytes: int, pointer: str) -> None:
        self._left = left_bytes
        self._pointer = pointer
        self.cut_bytes = 0

    def fit(self, content: CallContent) -> dict[str, list[dict[str, Any]]]:
        """Every field that is not empty, by attribute name, cut where needed."""
        fitted: dict[str, list[dict[str, Any]]] = {}
        for field, name in _FIELDS:
            items: list[dict[str, Any]] = getattr(content, field)
            if not items:
                continue
            items = [_writable(item) for item in items]
            size = len(orjson.dumps(items)) + len(name)
            if size > self._left:
                items, size = self._cut(field, items, size, name)
            if size <= self._left:
                fitted[name] = items
                self._left -= size
        return fitted

    def _cut(
        self, field: str, items: list[dict[str, Any]], size: int, name: str
    ) -> tuple[list[dict[str, Any]], int]:
        """`items` with their largest parts replaced until they fit, and their size then; at last one reference for all."""
        whole = size
        holders: list[tuple[list[dict[str, Any]], int]] = []
        if field in ("tools", "system"):
            items = list(items)
            holders = [(items, index) for index in range(len(items))]
        else:
            items = [{**item, "parts": list(item["parts"])} for item in items]
            holders = [
                (item["parts"], index) for item in items for index in range(len(item["parts"]))
            ]
        sized = sorted(
            ((len(orjson.dumps(parts[index])), parts, index) for parts, index in holders),
            key=lambda each: -each[0],
        )
        for part_bytes, parts, index in sized:
            smaller = self._smaller(field, parts[index], part_bytes)
            smaller_bytes = len(orjson.dumps(smaller))
            if smaller_bytes >= part_bytes:
                break
            parts[index] = smaller
            size -= part_bytes - smaller_bytes
            if size <= self._left:
                self.cut_bytes += whole - size
                return items, size
        if field in ("input", "output") and (kept := self._newest(field, items, name)) is not None:
            kept_bytes = len(orjson.dumps(kept)) + len(name)
            self.cut_bytes += max(0, whole - kept_bytes)
            return kept, kept_bytes
        reference = self._reference(items, whole)
        if field == "tools":
            items = [{**reference, "name": f"{len(items)} tools"}]
        elif field == "system":
            items = [reference]
        else:
            role = "assistant" if field == "output" else "user"
            items = [{"role": role, "parts": [{**reference, "messages": len(items)}]}]
        self.cut_bytes += whole
        return items, len(orjson.dumps(items)) + len(name)

    def _newest(
        self, field: str, messages: list[dict[str, Any]], name: str
    ) -> list[dict[str, Any]] | None:
        """The last messages that fit, behind one reference for all those before; null where not even one fits."""
        room = self._left - len(name) - _REFERENCE_BYTES
        first = len(messages)
        for index in range(len(messages) - 1, -1, -1):
            room -= len(orjson.dumps(messages[index])) + 1
            if room < 0:
                break
            first = index
        if first == len(messages):
            return None
        dropped = messages[:first]
        reference = self._reference(dropped, len(orjson.dumps(dropped)))
        role = "assistant" if field == "output" else "user"
        return [{"role": role, "parts": [{**reference, "messages": first}]}, *messages[first:]]

    def _smaller(self, field: str, part: dict[str, Any], part_bytes: int) -> dict[str, Any]:
        """What stands for a part that does not fit; tool calls and definitions keep their names."""
        if field == "tools":
            return {key: part[key] for key in ("type", "name") if key in part}
        reference = self._reference(part, part_bytes)
        kind = part.get("type")
        if kind == "tool_call":
            kept: dict[str, Any] = {key: part[key] for key in ("type", "id", "name") if key in part}
            return {**kept, "arguments": {REFERENCE: reference}}
        if kind == "tool_call_response":
            kept = {key: part[key] for key in ("type", "id") if key in part}
            return {**kept, "response": {REFERENCE: reference}}
        return reference

    def _reference(self, value: Any, size_bytes: int) -> dict[str, Any]:
        reference: dict[str, Any] = {
            "type": REFERENCE,
            "sha256": hashlib.sha256(orjson.dumps(value)).hexdigest(),
            "size_bytes": size_bytes,
            "record": self._pointer,
        }
        if isinstance(value, dict) and isinstance(value.get("type"), str):
            reference["part_type"] = value["type"][:64]
        return reference


def _attribute_bytes(span: SpanData) -> int:
    """About what the span's attributes take when encoded."""
    total = len(span.name) + len(span.status.description) + 256
    for key, value in span.attributes.items():
        total += len(key) + 12
        if isinstance(value, str):
            total += len(value.encode("utf-8", "replace"))
        elif isinstance(value, (list, tuple)):
            total += sum(len(item.encode("utf-8", "replace")) + 6 for item in value)
    return total


def _writable(item: dict[str, Any]) -> dict[str, Any]:
    """`item`, or a note in its place where it cannot be written as JSON: nested too deeply, or text that is no Unicode."""
    try:
        orjson.dumps(item)
    except TypeError:
        note = {"type": "unwritable", "name": "unwritable"}
        return {"role": "user", "parts": [note]} if "parts" in item else note
    return item


def _structured(
    fitted: Mapping[str, Any], texts: Mapping[str, str], left_bytes: int
) -> dict[str, Any]:
    """The fields as structured values; one whose structure would take more than there is (many small numbers) as JSON text."""
    made: dict[str, Any] = {}
    reserved = sum(len(text) for text in texts.values())
    for name, value in fitted.items():
        reserved -= len(texts[name])
        bounded = _bounded(value, MAX_DEPTH)
        size = _encoded_bytes(bounded)
        if size + reserved <= left_bytes:
            made[name] = bounded
        else:
            made[name] = texts[name]
            size = len(texts[name])
        left_bytes -= size
    return made


def _encoded_bytes(value: Any) -> int:
    """At most what a structured value takes when encoded."""
    if isinstance(value, dict):
        return 8 + sum(
            18 + len(key.encode("utf-8", "replace")) + _encoded_bytes(item)
            for key, item in value.items()
        )
    if isinstance(value, list):
        return 8 + sum(8 + _encoded_bytes(item) for item in value)
    if isinstance(value, str):
        return 8 + len(value.encode("utf-8", "replace"))
    return 12


def _bounded(value: Any, depth: int) -> Any:
    """`value` with at most `depth` levels; what lies deeper as JSON text."""
    if isinstance(value, dict):
        if depth == 0:
            return orjson.dumps(value).decode()
        return {key: _bounded(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        if depth == 0:
            return orjson.dumps(value).decode()
        return [_bounded(item, depth - 1) for item in value]
    return value
