"""What was said in a call, by dialect: instructions, input and output messages, tool definitions, in the published shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_gym.tracing.message_parts import (
    Message,
    Part,
    file_part,
    function_definition,
    inline_part,
    joined_texts,
    media_part,
    message,
    openai_content,
    other_part,
    reasoning_part,
    server_tool_part,
    text_part,
    tool_call_part,
    tool_result_part,
)
from otel_gym.tracing.reading import mapping, sequence


@dataclass(slots=True)
class CallContent:
    """The content of one call; empty where there was none."""

    system: list[Part] = field(default_factory=list)
    input: list[Message] = field(default_factory=list)
    output: list[Message] = field(default_factory=list)
    tools: list[Part] = field(default_factory=list)


def call_content(
    dialect: str, request: Mapping[str, Any], response: Mapping[str, Any]
) -> CallContent:
    """The content of a request and its response."""
    if dialect == "responses":
        return _responses(request, response)
    if dialect == "messages":
        return _messages(request, response)
    if dialect == "completions":
        return _completions(request, response)
    return _chat(request, response)


def _chat(request: Mapping[str, Any], response: Mapping[str, Any]) -> CallContent:
    content = CallContent(
        input=[_chat_message(each) for each in sequence(request.get("messages"))],
        tools=[_chat_tool(each) for each in sequence(request.get("tools"))],
    )
    for choice in sequence(response.get("choices")):
        said = mapping(mapping(choice).get("message"))
        if said:
            made = _chat_message({"role": "assistant", **said})
            reason = mapping(choice).get("finish_reason")
            content.output.append(
                message(made["role"], made["parts"], name=made.get("name"), finish_reason=reason)
            )
    return content


def _chat_message(item: object) -> Message:
    said = mapping(item)
    role = said.get("role")
    if role in ("tool", "function"):
        parts = [tool_result_part(said.get("tool_call_id"), _plain(said.get("content")))]
        return message("tool", parts, name=said.get("name"))
    parts = []
    thought = said.get("reasoning_content", said.get("reasoning"))
    if isinstance(thought, str) and thought:
        parts.append(reasoning_part(thought))
    parts.extend(openai_content(said.get("content")))
    if isinstance(said.get("refusal"), str):
        parts.append(text_part(said["refusal"]))
    for call in sequence(said.get("tool_calls")):
        called = mapping(call)
        function = mapping(called.get("function")) or mapping(called.get("custom"))
        parts.append(
            tool_call_part(
                called.get("id"),
                function.get("name"),
                function.get("arguments", function.get("input")),
            )
        )
    if legacy := mapping(said.get("function_call")):
        parts.append(tool_call_part(None, legacy.get("name"), legacy.get("arguments")))
    return message(role, parts, name=said.get("name"))


def _chat_tool(item: object) -> Part:
    tool = mapping(item)
    if tool.get("type") == "function" or "function" in tool:
        function = mapping(tool.get("function"))
        return function_definition(function.get("name"), function, "parameters")
    named = mapping(tool.get(str(tool.get("type"))))
    return {**other_part(tool), "name": str(tool.get("name", named.get("name", "")))}


def _responses(request: Mapping[str, Any], response: Mapping[str, Any]) -> CallContent:
    content = CallContent(tools=[_responses_tool(each) for each in sequence(request.get("tools"))])
    instructions = request.get("instructions")
    if isinstance(instructions, list):
        for item in instructions:
            content.system.extend(_responses_item(item)["parts"])
    elif instructions is not None:
        content.system.append(text_part(instructions))
    given = request.get("input")
    if isinstance(given, list):
        content.input = [_responses_item(item) for item in given]
    elif given is not None:
        content.input = [message("user", [text_part(given)])]
    parts = [
        part for item in sequence(response.get("output")) for part in _responses_item(item)["parts"]
    ]
    if parts:
        reason = mapping(response.get("incomplete_details")).get("reason")
        content.output = [message("assistant", parts, finish_reason=reason)]
    return content


def _responses_item(item: object) -> Message:
    said = mapping(item)
    kind = said.get("type", "message")
    if kind == "message":
        return message(said.get("role"), openai_content(said.get("content")))
    if kind in ("function_call", "custom_tool_call"):
        part = tool_call_part(
            said.get("call_id", said.get("id")),
            said.get("name"),
            said.get("arguments", said.get("input")),
        )
        return message("assistant", [part])
    if kind in ("function_call_output", "custom_tool_call_output"):
        return message("tool", [tool_result_part(said.get("call_id"), _plain(said.get("output")))])
    if kind == "reasoning":
        thought = joined_texts(said.get("summary")) or joined_texts(said.get("content"))
        return message(
            "assistant", [reasoning_part(thought)] if thought else [{"type": "reasoning_encrypted"}]
        )
    if isinstance(kind, str) and kind.endswith("_call"):
        return message("assistant", [server_tool_part(said)])
    return message(said.get("role", "assistant"), [other_part(item)])


def _responses_tool(item: object) -> Part:
    tool = mapping(item)
    if tool.get("type") == "function":
        return function_definition(tool.get("name"), tool, "parameters")
    return {**other_part(tool), "name": str(tool.get("name", tool.get("type", "")))}


def _messages(request: Mapping[str, Any], response: Mapping[str, Any]) -> CallContent:
    content = CallContent(
        system=_blocks(request.get("system")),
        input=[
            message(mapping(each).get("role"), _blocks(mapping(each).get("content")))
            for each in sequence(request.get("messages"))
        ],
        tools=[_messages_tool(each) for each in sequence(request.get("tools"))],
    )
    parts = _blocks(response.get("content"))
    if parts:
        content.output = [message("assistant", parts, finish_reason=response.get("stop_reason"))]
    return content


def _blocks(content: object) -> list[Part]:
    if content is None:
        return []
    if not isinstance(content, list):
        return [text_part(content)]
    return [_block(item) for item in content]


def _block(item: object) -> Part:
    block = mapping(item)
    kind = block.get("type")
    if kind == "text":
        return text_part(block.get("text"))
    if kind == "thinking":
        return reasoning_part(str(block.get("thinking", "")))
    if kind == "redacted_thinking":
        return {"type": "reasoning_encrypted"}
    if kind == "tool_use":
        return tool_call_part(block.get("id"), block.get("name"), block.get("input"))
    if kind == "tool_result":
        return tool_result_part(block.get("tool_use_id"), _block_result(block.get("content")))
    if kind in ("image", "document"):
        return _source(kind, mapping(block.get("source")))
    if kind in ("server_tool_use", "mcp_tool_use"):
        return server_tool_part(block)
    if isinstance(kind, str) and kind.endswith("_tool_result"):
        part: Part = {"type": "server_tool_call_response", "server_tool_call_response": dict(block)}
        if isinstance(block.get("tool_use_id"), str):
            part["id"] = block["tool_use_id"]
        return part
    return other_part(item)


def _block_result(content: object) -> object:
    """A tool's result: its text where that is all there is, else its parts."""
    if not isinstance(content, list):
        return content
    return _plain_parts(_blocks(content))


def _source(modality: str, source: Mapping[str, Any]) -> Part:
    kind = source.get("type")
    if kind == "url":
        return media_part(modality, source.get("url"))
    if kind == "file":
        return file_part(modality, source.get("file_id"))
    if kind == "text":
        return text_part(source.get("data"))
    return inline_part(modality, source.get("data"), source.get("media_type"))


def _messages_tool(item: object) -> Part:
    tool = mapping(item)
    if tool.get("type") in (None, "custom"):
        return function_definition(tool.get("name"), tool, "input_schema")
    return {**other_part(tool), "name": str(tool.get("name", ""))}


def _completions(request: Mapping[str, Any], response: Mapping[str, Any]) -> CallContent:
    prompt = request.get("prompt")
    prompts = (
        prompt
        if isinstance(prompt, list) and not all(isinstance(each, int) for each in prompt)
        else [prompt]
    )
    content = CallContent()
    for each in prompts:
        if isinstance(each, str):
            content.input.append(message("user", [text_part(each)]))
        elif isinstance(each, list):
            content.input.append(message("user", [{"type": "token_ids", "count": len(each)}]))
    for choice in sequence(response.get("choices")):
        said = mapping(choice)
        if isinstance(said.get("text"), str):
            content.output.append(
                message(
                    "assistant", [text_part(said["text"])], finish_reason=said.get("finish_reason")
                )
            )
    return content


def _plain(content: object) -> object:
    """A tool's result as it was given: its text where that is all there is, else its parts."""
    return _plain_parts(openai_content(content)) if isinstance(content, list) else content


def _plain_parts(parts: list[Part]) -> object:
    if all(part.get("type") == "text" for part in parts):
        return "\n".join(str(part.get("content", "")) for part in parts)
    return parts
