"""Responses streams: https://platform.openai.com/docs/api-reference/responses-streaming"""

from __future__ import annotations

from typing import Any, NamedTuple

from otel_gym.dialects.merge import Pieces, fill, settle
from otel_gym.dialects.names import DialectName
from otel_gym.dialects.reading import EventAccumulator
from otel_gym.dialects.runs import Growth

_SNAPSHOTS = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
_ENVELOPE = frozenset(
    {
        "type",
        "sequence_number",
        "output_index",
        "item_id",
        "content_index",
        "summary_index",
        "annotation_index",
        "obfuscation",
        "event_id",
        "response_id",
    }
)
"""Fields of an event that say where its payload belongs."""
_SILENT = frozenset({"keepalive", "ping", "response.keepalive"})


class Place(NamedTuple):
    """Where a text of an item lives: `item[parts][index][field]`, or `item[field]` without `parts`."""

    item_type: str
    parts: str
    part_type: str
    field: str
    given_as: str
    """The field of the `.done` event that repeats the whole text."""


class _Streak:
    """Deltas of one text that follow each other, which is nearly all of a stream."""

    __slots__ = ("_content", "_item", "_kind", "_output", "_summary", "pieces")

    def __init__(self, payload: dict[str, Any], pieces: Pieces) -> None:
        get = payload.get
        self._kind, self._item, self._output = get("type"), get("item_id"), get("output_index")
        self._content, self._summary = get("content_index"), get("summary_index")
        self.pieces = pieces

    def continues(self, kind: str, payload: dict[str, Any]) -> bool:
        """Whether an event only adds text at the same place."""
        get = payload.get
        return (
            kind == self._kind
            and get("output_index") == self._output
            and get("content_index") == self._content
            and get("item_id") == self._item
            and get("summary_index") == self._summary
            and get("delta").__class__ is str
            and not get("logprobs")
            and _DELTA_KEYS.issuperset(payload)
        )


_PLACES = {
    "response.output_text": Place("message", "content", "output_text", "text", "text"),
    "response.refusal": Place("message", "content", "refusal", "refusal", "refusal"),
    "response.reasoning_text": Place("reasoning", "content", "reasoning_text", "text", "text"),
    "response.reasoning_summary_text": Place(
        "reasoning", "summary", "summary_text", "text", "text"
    ),
    "response.function_call_arguments": Place("function_call", "", "", "arguments", "arguments"),
    "response.custom_tool_call_input": Place("custom_tool_call", "", "", "input", "input"),
    "response.mcp_call_arguments": Place("mcp_call", "", "", "arguments", "arguments"),
    "response.code_interpreter_call_code": Place("code_interpreter_call", "", "", "code", "code"),
    "response.apply_patch_call_operation_diff": Place(
        "apply_patch_call", "operation", "", "diff", "diff"
    ),
}
_AUDIO = {"response.audio": "data", "response.audio.transcript": "transcript"}
_PARTS = {
    "response.content_part": ("message", "content", "content_index"),
    "response.reasoning_part": ("reasoning", "content", "content_index"),
    "response.reasoning_summary_part": ("reasoning", "summary", "summary_index"),
}


class ResponsesAccumulator(EventAccumulator):
    """The response rebuilt from its events as they come, reconciled with the terminal response object.

    The terminal object is authoritative where it says something; what it leaves out or empty is taken
    from the events; what disagrees with it is kept in `unmerged`.
    """

    dialect: DialectName = "responses"
    meaningless = ("sequence_number", "obfuscation")

    def __init__(self) -> None:
        super().__init__()
        self._base: dict[str, Any] = {}
        self._final: dict[str, Any] | None = None
        self._items: dict[int, dict[str, Any]] = {}
        self._finished: set[int] = set()
        self._index_of: dict[str, int] = {}
        self._last = 0
        self._next = 0
        self._streak: _Streak | None = None

    def merge(self, event: str, payload: dict[str, Any]) -> None:
        """Merge one event."""
        kind = payload.get("type")
        if kind.__class__ is not str:
            kind = event
        run = self._streak
        if run is not None:
            if run.continues(kind, payload):
                text = payload["delta"]
                run.pieces.append(text)
                if self.may_begin_run():
                    self.growth = Growth(text, run.pieces, _delta_of, lambda: self._streak is run)
                return
            self._streak = None
        stem, _, verb = kind.rpartition(".")
        if verb == "delta":
            self._delta(stem, payload)
        elif kind in _SNAPSHOTS or kind in _ENDS:
            self._snapshot(kind, payload)
        elif stem == "response.output_item":
            self._item(verb, payload)
        elif stem in _PARTS and verb in ("added", "done"):
            self._part(stem, verb, payload)
        elif verb == "done":
            self._done(stem, payload)
        elif kind == "response.output_text.annotation.added":
            self._annotation(payload)
        elif kind == "error" or (not kind and payload.get("error") is not None):
            self._error(payload)
        elif kind in _SILENT or self._status(kind, payload):
            pass
        else:
            if payload.get("response").__class__ is dict:
                self._base.update(payload["response"])
            self.unmerged.append(payload)

    # --- whole objects -------------------------------------------------------------------------

    def _snapshot(self, kind: str, payload: dict[str, Any]) -> None:
        response = payload.get("response")
        if response.__class__ is not dict:
            self.unmerged.append(payload)
            return
        if kind in _ENDS:
            if self._final is not None and self._final != response:
                self.conflict("response", self._final)
            self._final = response
            if kind == "response.failed" and self.error is None:
                self.error = response.get("error")
        else:
            self._base.update(response)

    def _error(self, payload: dict[str, Any]) -> None:
        error = payload.get("error")
        if error.__class__ is not dict:
            error = {k: v for k, v in payload.items() if k not in ("type", "sequence_number")}
        if self.error is None:
            self.error = error
        elif self.error != error:
            self.unmerged.append(payload)

    def _item(self, verb: str, payload: dict[str, Any]) -> None:
        item = payload.get("item")
        if item.__class__ is not dict:
            self.unmerged.append(payload)
            return
        index = payload.get("output_index")
        if index.__class__ is not int:
            known = self._index_of.get(item["id"]) if item.get("id").__class__ is str else None
            index = self._next if known is None else known
        self._last = index
        if item.get("id").__class__ is str:
            self._index_of[item["id"]] = index
        built = self._items.get(index)
        if verb == "done":
            self._finished.add(index)
        if built is not None:
            self._replace(built, item, f"output[{index}]")
        self._set_item(index, item)

    def _part(self, stem: str, verb: str, payload: dict[str, Any]) -> None:
        part = payload.get("part")
        if part.__class__ is not dict:
            self.unmerged.append(payload)
            return
        item_type, parts, index_name = _PARTS[stem]
        item = self._target(payload, item_type)
        slot = _slot(item, parts, payload.get(index_name))
        held = item[parts]
        built = held[slot] if slot < len(held) else None
        while len(held) <= slot:
            held.append(None)
        if built.__class__ is dict:
            self._replace(built, part, f"{parts}[{slot}]")
        held[slot] = part

    def _replace(self, built: dict[str, Any], given: dict[str, Any], path: str) -> None:
        """Complete what the server says is whole with what only the deltas said."""
        self._compare(built, given, path)
        fill(given, built)

    def _compare(self, built: Any, given: Any, path: str) -> None:
        """Keep texts that were streamed and that the whole object contradicts."""
        if built.__class__ is Pieces and given.__class__ is str and given:
            built = "".join(built)
        if built.__class__ is str and given.__class__ is str:
            if built and given and built != given and _rest(path) in _STREAMED:
                self.conflict(path, built)
        elif built.__class__ is dict and given.__class__ is dict:
            for key, value in built.items():
                if key in given:
                    self._compare(value, given[key], f"{path}.{key}")
        elif built.__class__ is list and given.__class__ is list:
            for position, value in enumerate(built):
                if position < len(given):
                    self._compare(value, given[position], f"{path}[{position}]")
                elif given:
                    self.conflict(f"{path}[{position}]", value)

    # --- pieces --------------------------------------------------------------------------------

    def _delta(self, stem: str, payload: dict[str, Any]) -> None:
        delta = payload.get("delta")
        place = _PLACES.get(stem)
        if place is None or delta.__class__ is not str:
            if stem in _AUDIO and delta.__class__ is str:
                audio = self._base.setdefault("audio", {})
                if audio.__class__ is dict:
                    audio.setdefault(_AUDIO[stem], Pieces()).append(delta)
                    return
            self.unmerged.append(payload)
            return
        holder = self._holder(place, payload)
        have = holder.get(place.field)
        if have.__class__ is Pieces:
            have.append(delta)
        else:
            if have is not None and have.__class__ is not str:
                self.conflict(place.field, have)
                have = None
            holder[place.field] = Pieces((delta,) if have is None else (have, delta))
        logprobs = payload.get("logprobs")
        if logprobs:
            self._logprobs(holder, logprobs)
        if not payload.keys() <= _DELTA_KEYS:
            self._rest(payload, _DELTA_KEYS)
        self._streak = _Streak(payload, holder[place.field])

    def _logprobs(self, holder: dict[str, Any], logprobs: Any) -> None:
        have = holder.get("logprobs")
        if have.__class__ is list and logprobs.__class__ is list:
            have.extend(logprobs)
        elif have is None:
            holder["logprobs"] = logprobs
        else:
            self.conflict("logprobs", logprobs)

    def _done(self, stem: str, payload: dict[str, Any]) -> None:
        place = _PLACES.get(stem)
        if place is None:
            if stem not in _AUDIO:
                self.unmerged.append(payload)
            return
        whole = payload.get(place.given_as)
        holder = self._holder(place, payload)
        if whole.__class__ is str:
            have = settle(holder.get(place.field))
            if have.__class__ is str and have and have != whole:
                self.conflict(place.field, have)
            holder[place.field] = whole
        if payload.get("logprobs"):
            holder["logprobs"] = payload["logprobs"]
        known = _DELTA_KEYS | {place.given_as, "name"}
        if payload.get("name").__class__ is str and not place.parts:
            holder.setdefault("name", payload["name"])
        if not payload.keys() <= known:
            self._rest(payload, known)

    def _rest(self, payload: dict[str, Any], known: frozenset[str]) -> None:
        extra = {k: v for k, v in payload.items() if k not in known and v is not None}
        if extra:
            self.unmerged.append({"type": payload.get("type"), **extra})

    def _annotation(self, payload: dict[str, Any]) -> None:
        part = self._holder(_PLACES["response.output_text"], payload)
        have = part.get("annotations")
        if have.__class__ is not list:
            have = part["annotations"] = []
        index = payload.get("annotation_index")
        if index.__class__ is int and 0 <= index < len(have):
            if have[index] is not None and have[index] != payload.get("annotation"):
                self.conflict(f"annotations[{index}]", have[index])
            have[index] = payload.get("annotation")
        else:
            have.append(payload.get("annotation"))

    def _status(self, kind: str, payload: dict[str, Any]) -> bool:
        """`response.web_search_call.searching` and its kin say how far a hosted tool is."""
        words = kind.split(".")
        if len(words) != 3 or words[0] != "response" or "output_index" not in payload:
            return False
        index = payload["output_index"]
        if index.__class__ is not int or not payload.keys() <= _ENVELOPE:
            return False
        item = self._target(payload, words[1])
        if index not in self._finished:
            item["status"] = words[2]
        return True

    def _target(self, payload: dict[str, Any], item_type: str) -> dict[str, Any]:
        """The item that an event belongs to, begun where its own event never came."""
        index, identity = payload.get("output_index"), payload.get("item_id")
        if index.__class__ is not int:
            index = (
                self._index_of.get(identity, self._last)
                if identity.__class__ is str
                else self._last
            )
        self._last = index
        item = self._items.get(index)
        if item is None:
            item = self._set_item(index, {"type": item_type})
            if identity.__class__ is str:
                item["id"] = identity
                self._index_of[identity] = index
        return item

    def _set_item(self, index: int, item: dict[str, Any]) -> dict[str, Any]:
        self._items[index] = item
        self._next = max(self._next, index + 1)
        return item

    def _holder(self, place: Place, payload: dict[str, Any]) -> dict[str, Any]:
        """The object that holds a growing text."""
        item = self._target(payload, place.item_type)
        parts = place.parts
        if not parts:
            return item
        if parts == "operation":
            if item.get(parts).__class__ is not dict:
                item[parts] = {}
            return item[parts]  # type: ignore[no-any-return]
        slot = _slot(
            item, parts, payload.get("summary_index" if parts == "summary" else "content_index")
        )
        held = item[parts]
        while len(held) <= slot:
            held.append(None)
        if held[slot].__class__ is not dict:
            held[slot] = {"type": place.part_type}
        return held[slot]  # type: ignore[no-any-return]

    # --- the end -------------------------------------------------------------------------------

    def result(self) -> dict[str, Any] | None:
        """The terminal response completed by the events, else what the events built."""
        built = [settle(item) for _, item in sorted(self._items.items())]
        for item in built:
            for parts in ("content", "summary"):
                if item.get(parts).__class__ is list:
                    item[parts] = [part for part in item[parts] if part is not None]
        final = self._final
        if final is None:
            response = self._base
            if built:
                response["output"] = built
        else:
            response = final
            self._reconcile(response, built)
            fill(response, {k: v for k, v in self._base.items() if k not in response})
        if self.error is not None and response.get("error") is None:
            response["error"] = self.error
        return settle(response) if response else None

    def _reconcile(self, response: dict[str, Any], built: list[dict[str, Any]]) -> None:
        output = response.get("output")
        if output.__class__ is not list or not output:
            if built:
                response["output"] = built
            return
        by_id = {
            item["id"]: item
            for item in output
            if item.__class__ is dict and item.get("id").__class__ is str
        }
        for position, item in enumerate(built):
            given = by_id.get(item["id"]) if item.get("id").__class__ is str else None
            if given is None and position < len(output):
                there = output[position]
                if there.__class__ is dict and there.get("type") == item.get("type"):
                    given = there
            if given is None:
                self.conflict(f"output[{position}]", item)
            else:
                self._replace(item, given, f"output[{position}]")


def _delta_of(payload: Any) -> tuple[Any, str]:
    return payload, "delta"


_DELTA_KEYS = _ENVELOPE | {"delta", "logprobs"}
_STREAMED = frozenset({"text", "refusal", "arguments", "input", "code", "diff"})


def _rest(path: str) -> str:
    return path.rpartition(".")[2]


def _slot(item: dict[str, Any], parts: str, index: Any) -> int:
    """The position of a part; the last one where the event does not say."""
    if item.get(parts).__class__ is not list:
        item[parts] = []
    if index.__class__ is int and 0 <= index <= len(item[parts]) + MAX_GAP:
        return index
    return max(len(item[parts]) - 1, 0)


MAX_GAP = 64
"""Parts that may be missing before one; an index beyond that would only be there to make the list long."""
