"""Chat Completions streams: https://platform.openai.com/docs/api-reference/chat-streaming"""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

from otel_gym.dialects.choices import Choice, ChoicesAccumulator
from otel_gym.dialects.merge import Pieces, add_delta, settle
from otel_gym.dialects.names import DialectName
from otel_gym.dialects.toolcalls import ToolCalls, add_named


class ChatAccumulator(ChoicesAccumulator):
    """Every choice by index, with all fields of its deltas: text, reasoning, refusal, tool calls, the
    legacy function call, audio, annotations, and whatever else comes.
    """

    dialect: DialectName = "chat"
    object_names = ("chat.completion.chunk", "chat.completion")
    growing = "delta"

    def grow(self, slot: Choice, value: Any, alone: bool) -> None:
        """Add a delta to the message."""
        if value.__class__ is not dict:
            self.conflict("choices.delta", value)
            return
        delta: dict[str, Any] = value
        message = slot.message
        for key, value in delta.items():
            have = message.get(key)
            if have.__class__ is Pieces and value.__class__ is str:
                have.append(value)
                if alone and len(delta) == 1:
                    self.grew(message, key, value, partial(_delta_at, key=key))
            elif key == "tool_calls":
                if value.__class__ is list:
                    if slot.tools is None:
                        slot.tools = ToolCalls(self.conflict)
                        message["tool_calls"] = None
                    slot.tools.add(value)
                    if alone and len(delta) == 1 and len(value) == 1:
                        self._arguments_grew(slot.tools, value[0])
                elif value is None:
                    message.setdefault(key, None)
                else:
                    self.conflict("tool_calls", value)
            elif key == "function_call" and value.__class__ is dict:
                if have.__class__ is not dict:
                    have = message[key] = {}
                add_named(have, value, self.conflict)
            else:
                add_delta(message, key, value, self.conflict)

    def _arguments_grew(self, tools: ToolCalls, delta: Any) -> None:
        """Note it where a delta did nothing but append to the arguments of the call with its index."""
        if delta.__class__ is not dict or delta.keys() != _ARGUMENTS_ONLY:
            return
        call = tools.numbered(delta["index"])
        if call is None:
            return
        added, function = delta["function"], call.get("function")
        if added.__class__ is not dict or len(added) != 1 or function.__class__ is not dict:
            return
        text = added.get("arguments")
        if text.__class__ is str and function.get("arguments").__class__ is Pieces:
            self.grew(
                function,
                "arguments",
                text,
                _arguments_at,
                lambda: tools.numbered(delta["index"]) is call and call.get("function") is function,
            )

    def settle_choice(self, slot: Choice) -> dict[str, Any]:
        """The message from the deltas, completed by a whole message where one was sent."""
        message = slot.message
        if slot.tools is not None:
            message["tool_calls"] = slot.tools.calls()
        audio = message.get("audio")
        if audio.__class__ is dict and audio.get("data").__class__ is Pieces:
            audio["data"] = join_base64(audio["data"])
        settle(message)
        whole = slot.fields.pop("message", None)
        if whole.__class__ is dict:
            self._reconcile(message, whole)
        elif whole is not None:
            self.conflict("choices.message", whole)
        slot.fields.setdefault("finish_reason", None)
        return {"message": message, **slot.fields}

    def _reconcile(self, message: dict[str, Any], whole: dict[str, Any]) -> None:
        for key, value in whole.items():
            have = message.get(key)
            if have is None or have == "" or have == []:
                message[key] = value
            elif have != value and value is not None:
                self.conflict(f"choices.message.{key}", value)


_ARGUMENTS_ONLY = frozenset({"index", "function"})


def _arguments_at(payload: Any) -> tuple[Any, str]:
    return payload["choices"][0]["delta"]["tool_calls"][0]["function"], "arguments"


def _delta_at(payload: Any, key: str) -> tuple[Any, str]:
    return payload["choices"][0]["delta"], key


def join_base64(pieces: list[str]) -> str:
    """Base64 that came in pieces, each of which may be padded, as one; joined as text where it is none."""
    text = "".join(pieces)
    if "=" not in text.rstrip("="):
        return text
    try:
        joined = b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    except ValueError:
        return text
    return base64.b64encode(joined).decode("ascii")
