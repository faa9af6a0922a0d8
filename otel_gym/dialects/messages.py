"""Messages streams: https://docs.anthropic.com/en/api/messages-streaming"""

from __future__ import annotations

from typing import Any

from otel_gym.dialects.jsontext import loads
from otel_gym.dialects.merge import Pieces, add_delta, settle
from otel_gym.dialects.names import DialectName
from otel_gym.dialects.reading import EventAccumulator
from otel_gym.dialects.runs import Growth

_DELTA_BLOCKS = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
"""The block that a delta belongs to where its `content_block_start` never came."""


class MessagesAccumulator(EventAccumulator):
    """Blocks by index with text, thinking, signatures, citations and tool inputs; usage of both places."""

    dialect: DialectName = "messages"

    def __init__(self) -> None:
        super().__init__()
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, Pieces] = {}
        self._last = 0
        self._next = 0

    def merge(self, event: str, payload: dict[str, Any]) -> None:
        """Merge one event."""
        kind = payload.get("type")
        if kind.__class__ is not str:
            kind = event
        if kind == "content_block_delta":
            self._delta(payload)
        elif kind == "content_block_start":
            self._start_block(payload)
        elif kind == "content_block_stop":
            pass
        elif kind == "message_start" and payload.get("message").__class__ is dict:
            self._start(payload["message"])
        elif kind == "message_delta":
            self._message_delta(payload)
        elif kind == "error" or (not kind and payload.get("error") is not None):
            error = payload.get("error", payload)
            if self.error is None:
                self.error = error
            else:
                self.unmerged.append(payload)
        elif kind not in ("ping", "message_stop") or len(payload) > 1:
            if kind == "message_stop":
                self._message_stop(payload)
            else:
                self.unmerged.append(payload)

    def _start(self, message: dict[str, Any]) -> None:
        earlier, self._message = self._message, dict(message)
        content = self._message.get("content")
        if content.__class__ is list and not self._blocks:
            for index, block in enumerate(content):
                if block.__class__ is dict:
                    self._blocks[index] = block
            self._next = len(content)
        if earlier:
            self._update(self._message, earlier)

    def _start_block(self, payload: dict[str, Any]) -> None:
        index = self._index(payload)
        block = payload.get("content_block")
        if block.__class__ is not dict:
            self.unmerged.append(payload)
            return
        if index in self._blocks:
            self.conflict(f"content[{index}]", settle(self._blocks[index]))
            self._inputs.pop(index, None)
        fresh = dict(block)
        for key in ("text", "thinking"):
            if fresh.get(key).__class__ is str:
                fresh[key] = Pieces((fresh[key],))
        self._blocks[index] = fresh
        self._next = max(self._next, index + 1)

    def _delta(self, payload: dict[str, Any]) -> None:
        index = self._index(payload)
        delta = payload.get("delta")
        if delta.__class__ is not dict:
            self.unmerged.append(payload)
            return
        kind = delta.get("type")
        block = self._blocks.get(index)
        if block is None:
            if kind.__class__ is not str or kind not in _DELTA_BLOCKS:
                self.unmerged.append(payload)
                return
            block = self._blocks[index] = {"type": _DELTA_BLOCKS[kind]}
            self._next = max(self._next, index + 1)
        for key, value in delta.items():
            have = block.get(key)
            if have.__class__ is Pieces and value.__class__ is str:
                have.append(value)
                if len(delta) == 2 and len(payload) == 3:
                    self._grew(index, block, key, key, value)
            elif key == "type":
                continue
            elif key == "partial_json" and value.__class__ is str:
                self._inputs.setdefault(index, Pieces()).append(value)
                if len(delta) == 2 and len(payload) == 3:
                    self._grew(index, self._inputs, index, key, value)
            elif key == "citation" and kind == "citations_delta":
                citations = block.get("citations")
                if citations.__class__ is not list:
                    citations = block["citations"] = []
                citations.append(value)
            elif value.__class__ is str and have.__class__ is str:
                block[key] = Pieces((have, value))
            elif value.__class__ is str and have is None:
                block[key] = Pieces((value,))
            else:
                add_delta(block, key, value, self.conflict)

    def _grew(self, index: int, holder: dict[Any, Any], at: object, key: str, text: str) -> None:
        """Note that an event did nothing but append the delta's `key` to `holder[at]`."""
        if not self.may_begin_run():
            return
        block, target = self._blocks.get(index), holder[at]
        self.growth = Growth(
            text,
            target,
            lambda payload: (payload["delta"], key),
            lambda: self._blocks.get(index) is block and holder.get(at) is target,
            index,
        )

    def resume(self, index: int) -> None:
        """The block that the run belonged to is the last one seen."""
        self._last = index

    def _message_delta(self, payload: dict[str, Any]) -> None:
        for key, value in payload.items():
            if key == "delta" and value.__class__ is dict:
                self._update(self._message, value)
            elif key == "usage" and value.__class__ is dict:
                usage = self._message.get("usage")
                if usage.__class__ is not dict:
                    usage = self._message["usage"] = {}
                self._update(usage, value)
            elif key != "type":
                self._update(self._message, {key: value})

    def _message_stop(self, payload: dict[str, Any]) -> None:
        self._update(self._message, {k: v for k, v in payload.items() if k != "type"})

    def _update(self, target: dict[str, Any], source: dict[str, Any]) -> None:
        """Later values win; null changes nothing that is known."""
        for key, value in source.items():
            if value is not None or key not in target:
                target[key] = value

    def _index(self, payload: dict[str, Any]) -> int:
        index = payload.get("index")
        if index.__class__ is int:
            self._last = index
        elif payload.get("type") == "content_block_start":
            self._last = self._next
        return self._last

    def _settle_inputs(self) -> None:
        for index, pieces in self._inputs.items():
            text = "".join(pieces)
            if not text:
                continue
            block = self._blocks[index]
            try:
                value = loads(text.encode("utf-8", "surrogatepass"))
            except ValueError:
                value = {"_raw": text}
            known = block.get("input")
            if known not in (None, {}, "") and known != value:
                self.conflict(f"content[{index}].input", known)
            block["input"] = value

    def result(self) -> dict[str, Any] | None:
        """The message as the non-streaming call would give it."""
        self._settle_inputs()
        message = self._message
        if self._blocks:
            message["content"] = [block for _, block in sorted(self._blocks.items())]
        if self.error is not None:
            message["error"] = self.error
        return settle(message) if message else None
