"""Chat messages as a prompt: rendered by a Jinja template that is given or that the engine names, or by the engine itself.

llama.cpp names its template in `GET /props`; vLLM renders and tokenizes in one step at `POST /tokenize`. Templates follow Hugging Face's conventions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import jinja2
import orjson
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from otel_gym.errors import SettingsError
from otel_gym.servers.connections import TRANSPORT_ERRORS
from otel_gym.servers.headers import Headers
from otel_gym.servers.refusal import NO_CHAT_TEMPLATE, NOT_RENDERABLE, Refusal
from otel_gym.servers.upstream import EngineRequest, Upstream

_JSON: Final = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt for /v1/completions."""

    prompt: str | list[int]
    room_tokens: int | None
    """Tokens left in the engine's context where it needs to be told (vLLM's default there is 16), else null."""


class ChatTemplate:
    """A Jinja chat template, in a sandbox. Raises `SettingsError` where it is none."""

    def __init__(
        self,
        source: str,
        variables: Mapping[str, Any] | None = None,
        *,
        engine_begins_with: str | None = None,
    ) -> None:
        """`variables` are those of the model (`bos_token`); `engine_begins_with` is what the engine puts before every prompt itself."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise SettingsError(f"chat_template: is no Jinja template: {error}") from None
        self._variables = dict(variables or {})
        self._begins_with = engine_begins_with or "\0"

    def render(self, body: Mapping[str, Any]) -> str:
        """The prompt of a chat request. Raises `Refusal` where the template does not take it."""
        extra = body.get("chat_template_kwargs")
        last_is_open = body.get("continue_final_message") is True
        try:
            prompt = self._template.render(
                {
                    **self._variables,
                    **(extra if isinstance(extra, dict) else {}),
                    "messages": _messages(body),
                    "tools": body.get("tools") or None,
                    "documents": body.get("documents"),
                    "add_generation_prompt": not last_is_open
                    and body.get("add_generation_prompt", True),
                }
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise Refusal(
                NOT_RENDERABLE, f"the chat template does not take these messages: {error}"
            ) from error
        return prompt.removeprefix(self._begins_with)


class ChatRenderer:
    """Renders chat requests for the engine behind `upstream`. `template` is Jinja text or a file's path; null asks the engine, once.

    Raises `SettingsError` for a file that cannot be read and for a text that is no template.
    """

    def __init__(self, upstream: Upstream, template: str | None) -> None:
        self._upstream = upstream
        self._given = ChatTemplate(_source(template)) if template else None
        self._template: ChatTemplate | None = None
        self._unlimited = False
        self._asked = False
        self._lock = asyncio.Lock()

    async def render(self, body: Mapping[str, Any], headers: Headers) -> Rendered:
        """The prompt of a chat request; `headers` are those that the engine is asked with. Raises `Refusal`."""
        await self._ask_once(headers)
        template = self._given or self._template
        if template is None:
            return await self._rendered_by_engine(body, headers)
        prompt = template.render(body)
        if self._unlimited or _limited(body):
            return Rendered(prompt, None)
        question = {"prompt": prompt, "add_special_tokens": False}
        if isinstance(body.get("model"), str):
            question["model"] = body["model"]
        answer = await self._ask("POST", "/tokenize", headers, question)
        room = _room(answer)
        if room is None:
            raise Refusal(
                NOT_RENDERABLE,
                "max_completion_tokens is missing, and the engine does not say how much room its context has",
            )
        return Rendered(prompt, room)

    async def _ask_once(self, headers: Headers) -> None:
        async with self._lock:
            if self._asked:
                return
            props = await self._ask("GET", "/props", headers)
            source = props.get("chat_template")
            if isinstance(source, str) and source:
                tokens: dict[str, Any] = {
                    key: props[key] for key in ("bos_token", "eos_token") if key in props
                }
                self._unlimited = True
                if self._given is None:
                    self._template = await self._named_template(source, tokens, headers)
            self._asked = True

    async def _named_template(
        self, source: str, tokens: dict[str, Any], headers: Headers
    ) -> ChatTemplate:
        """The template that the engine names. vLLM is told not to begin a prompt (`add_special_tokens`); llama.cpp does so for some models, and shows it for an empty one."""
        empty = await self._ask("POST", "/tokenize", headers, {"content": "", "add_special": True})
        begins = tokens.get("bos_token") if empty.get("tokens") else None
        try:
            return ChatTemplate(
                source, tokens, engine_begins_with=begins if isinstance(begins, str) else None
            )
        except SettingsError as error:
            raise Refusal(NO_CHAT_TEMPLATE, f"the engine's {error}") from error

    async def _rendered_by_engine(self, body: Mapping[str, Any], headers: Headers) -> Rendered:
        names = (
            "model",
            "messages",
            "tools",
            "chat_template_kwargs",
            "add_generation_prompt",
            "continue_final_message",
        )
        question = {name: body[name] for name in names if name in body}
        answer = await self._ask("POST", "/tokenize", headers, question)
        tokens = answer.get("tokens")
        if not isinstance(tokens, list) or not tokens:
            raise Refusal(
                NO_CHAT_TEMPLATE,
                "use_completions_api: the engine names no chat template and does not render at /tokenize; configure chat_template",
            )
        return Rendered(tokens, None if _limited(body) else _room(answer))

    async def _ask(
        self, method: str, target: str, headers: Headers, question: Any = None
    ) -> dict[str, Any]:
        """The engine's JSON object, empty where it has none to give. Raises `Refusal` where it cannot be reached."""
        asking = [
            (name, value)
            for name, value in headers
            if name in (b"authorization", b"x-api-key", b"traceparent", b"tracestate")
        ]
        body = None if question is None else orjson.dumps(question)
        request = EngineRequest(method, target.encode(), [*asking, _JSON], body)
        response = await self._upstream.open(request)
        try:
            content = await response.read()
            found = orjson.loads(content) if response.status_code == 200 else {}
        except (*TRANSPORT_ERRORS, ValueError):
            found = {}
        finally:
            await response.aclose()
        return found if isinstance(found, dict) else {}


def _source(template: str) -> str:
    if "{{" in template or "{%" in template:
        return template
    try:
        return Path(template).read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"chat_template: {template}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"chat_template: {template}: is not UTF-8 text") from None


def _limited(body: Mapping[str, Any]) -> bool:
    return any(body.get(name) is not None for name in ("max_completion_tokens", "max_tokens"))


def _room(answer: Mapping[str, Any]) -> int | None:
    total, used = answer.get("max_model_len"), answer.get("count")
    if type(total) is int and type(used) is int:
        return max(total - used, 1)
    return None


def _messages(body: Mapping[str, Any]) -> list[Any]:
    """The messages, a content of nothing but text parts joined, tool call arguments as the objects that templates expect."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise Refusal(NOT_RENDERABLE, "messages must be a list")
    return [_message(message) for message in messages]


def _message(message: Any) -> Any:
    if not isinstance(message, dict):
        raise Refusal(NOT_RENDERABLE, "a message must be an object")
    rendered = dict(message)
    content = message.get("content")
    if isinstance(content, list):
        if not all(
            isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
        ):
            raise Refusal(
                NOT_RENDERABLE, "use_completions_api: only text parts can be rendered into a prompt"
            )
        rendered["content"] = "\n".join(part["text"] for part in content)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        rendered["tool_calls"] = [_tool_call(call) for call in calls]
    return rendered


def _tool_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = orjson.loads(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
