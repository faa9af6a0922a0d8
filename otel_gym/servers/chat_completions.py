"""Chat served through /v1/completions: the request rewritten on its way out, the answer on its way back. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from otel_gym.servers.chat_template import Rendered

COMPLETIONS_TARGET: Final = b"/v1/completions"

_CHAT_ONLY: Final = frozenset(
    (
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "functions",
        "function_call",
        "documents",
        "chat_template",
        "chat_template_kwargs",
        "add_generation_prompt",
        "continue_final_message",
        "max_completion_tokens",
        "logprobs",
        "top_logprobs",
        "modalities",
        "audio",
        "reasoning_effort",
    )
)
_BLANK_LINE: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def completions_request(chat: Mapping[str, Any], rendered: Rendered) -> dict[str, Any]:
    """The /v1/completions request for a chat request; what only chat knows is left out, everything else is carried over."""
    request: dict[str, Any] = {key: value for key, value in chat.items() if key not in _CHAT_ONLY}
    request["prompt"] = rendered.prompt
    if isinstance(rendered.prompt, str):
        request.setdefault("add_special_tokens", False)
    limit = chat.get("max_completion_tokens")
    if limit is None:
        limit = chat.get("max_tokens")
    if limit is None:
        limit = rendered.room_tokens
    if limit is not None:
        request["max_tokens"] = limit
    if chat.get("logprobs") is True:
        request["logprobs"] = chat.get("top_logprobs") or 0
    return request


def chat_answer(completion: Mapping[str, Any]) -> dict[str, Any]:
    """A whole completion as a chat answer; what is not a completion (an error) is returned as it is."""
    choices = completion.get("choices")
    if not isinstance(choices, list):
        return dict(completion)
    return {
        **completion,
        "object": "chat.completion",
        "choices": [
            _choice(choice, "message", {"role": "assistant", "content": _text(choice)})
            for choice in choices
        ],
    }


class WholeAnswer:
    """Body transform for an answer that is not streamed: read whole, then sent as chat."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, part: bytes) -> bytes:
        self._parts.append(part)
        return b""

    def finish(self) -> bytes:
        body = b"".join(self._parts)
        value = _object(body)
        return body if value is None else orjson.dumps(chat_answer(value))


class StreamedAnswer:
    """Body transform for an event stream of completion chunks; every other event passes as it came."""

    def __init__(self) -> None:
        self._held = b""
        self._begun: set[int] = set()

    def feed(self, part: bytes) -> bytes:
        searched = max(len(self._held) - 3, 0)
        self._held += part
        out = b""
        start = 0
        for blank in _BLANK_LINE.finditer(self._held, searched):
            out += self._event(self._held[start : blank.end()])
            start = blank.end()
        self._held = self._held[start:]
        return out

    def finish(self) -> bytes:
        held, self._held = self._held, b""
        return self._event(held) if held else b""

    def _event(self, event: bytes) -> bytes:
        lines = event.splitlines()
        data = b"\n".join(
            line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")
        )
        value = _object(data)
        choices = value.get("choices") if value is not None else None
        if value is None or not isinstance(choices, list):
            return event
        chunk = {
            **value,
            "object": "chat.completion.chunk",
            "choices": [_choice(choice, "delta", self._delta(choice)) for choice in choices],
        }
        return b"data: " + orjson.dumps(chunk) + b"\n\n"

    def _delta(self, choice: Any) -> dict[str, Any]:
        index = choice.get("index", 0) if isinstance(choice, dict) else 0
        text = _text(choice)
        if type(index) is int and index not in self._begun:
            self._begun.add(index)
            return {"role": "assistant", "content": text}
        return {"content": text} if text else {}


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _text(choice: Any) -> str:
    text = choice.get("text") if isinstance(choice, dict) else None
    return text if isinstance(text, str) else ""


def _choice(choice: Any, key: str, content: dict[str, Any]) -> Any:
    if not isinstance(choice, dict):
        return choice
    rest = {name: value for name, value in choice.items() if name not in ("text", "logprobs")}
    converted = {"index": rest.pop("index", 0), key: content, **rest}
    if "logprobs" in choice:
        converted["logprobs"] = _logprobs(choice["logprobs"])
    return converted


def _logprobs(logprobs: Any) -> Any:
    """Completions' parallel lists as chat's list of tokens; llama.cpp sends the latter already."""
    if not isinstance(logprobs, dict) or "content" in logprobs:
        return logprobs
    tokens, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if not isinstance(tokens, list) or not isinstance(values, list):
        return logprobs
    tops = logprobs.get("top_logprobs")
    tops = tops if isinstance(tops, list) else []
    content = []
    for position, (token, value) in enumerate(zip(tokens, values, strict=False)):
        top = tops[position] if position < len(tops) else None
        ranked = top.items() if isinstance(top, dict) else ()
        content.append(
            {
                **_token(token, value),
                "top_logprobs": [_token(name, probability) for name, probability in ranked],
            }
        )
    return {"content": content}


def _token(token: Any, logprob: Any) -> dict[str, Any]:
    text = token if isinstance(token, str) else str(token)
    return {
        "token": text,
        "logprob": logprob,
        "bytes": list(text.encode("utf-8", "surrogatepass")),
    }
