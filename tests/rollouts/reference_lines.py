"""Generated capture lines in the shapes of the providers."""

from __future__ import annotations

import random
from typing import Any


def raw_line(chance: random.Random) -> dict[str, Any]:
    """One line as NeMo Gym writes it, of any dialect, whole or failed."""
    dialect = chance.choice(("responses", "chat", "messages"))
    raw: dict[str, Any] = {
        "model_call_id": f"{chance.getrandbits(128):032x}",
        "dialect": dialect,
        "model_ref": chance.choice((None, {"type": "responses_api_models", "name": "policy"})),
        "started_at": 1_790_000_000.25,
        "completed_at": 1_790_000_001.5,
        "latency_ms": chance.choice((12.25, 1250.0, 3)),
        "latency_ttft_ms": chance.choice((None, 10.5)),
        "status_code": 200,
        "error_category": None,
        "request": chance.choice((None, {}, {"model": "asked"}, {"messages": []})),
    }
    if chance.random() < 0.2:
        raw["status_code"] = chance.choice((None, 400, 429, 500))
        raw["error_category"] = chance.choice(("upstream_error", "cancelled", "rate_limit"))
        raw["response"] = chance.choice((None, {"error": {"message": "no"}}))
    else:
        raw["response"] = _SHAPES[dialect](chance)
    if chance.random() < 0.3:
        raw["client_session_id"] = "session"
    if chance.random() < 0.2:
        raw["upstream_attempted"] = True
        raw["response_source"] = chance.choice(("upstream", "local", None))
        raw["upstream_status_code"] = chance.choice((200, None))
        raw["local_response_reason"] = chance.choice((None, "empty_assistant"))
    if chance.random() < 0.3:
        raw["response_raw"] = "data: {}\n\n"
    if chance.random() < 0.1:
        raw["request_raw"] = "{"
    return raw


def _arguments(chance: random.Random) -> Any:
    return chance.choice(('{"a": 1}', "[1]", "{", "", '{"a": {"b": [null]}}', {"given": "object"}))


def _some(chance: random.Random, **values: Any) -> dict[str, Any]:
    """Each key in four of five cases."""
    return {key: value for key, value in values.items() if chance.random() < 0.8}


def _responses(chance: random.Random) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "c1", "id": "f1", "name": "add"}
    call["arguments"] = _arguments(chance)
    if chance.random() < 0.2:
        del call["call_id"]
    reasoning = {"type": "reasoning", "summary": [{"text": "first"}, {"text": ""}, {"text": "b"}]}
    items = [call, reasoning, {"type": "message", "content": [{"text": "hi"}]}]
    status = chance.choice(("completed", "incomplete", "failed", "in_progress"))
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    usage = _some(
        chance,
        input_tokens=chance.randrange(900),
        output_tokens=chance.randrange(90),
        total_tokens=chance.randrange(990),
        input_tokens_details={"cached_tokens": chance.randrange(9)},
        output_tokens_details={"reasoning_tokens": chance.randrange(9)},
    )
    output = chance.sample(items, chance.randrange(4))
    return _some(
        chance, id="resp_1", model="m", incomplete_details=details, usage=usage, output=output
    ) | {"status": status}


def _chat(chance: random.Random) -> dict[str, Any]:
    tool = {"id": "t", "type": "function", "function": {"name": "add"}}
    tool["function"]["arguments"] = _arguments(chance)  # type: ignore[index]
    message = _some(
        chance,
        role="assistant",
        content=chance.choice((None, "", "hi")),
        tool_calls=chance.choice((None, [], [tool], [tool, tool])),
        reasoning_content=chance.choice((None, "", "thought")),
        reasoning=chance.choice((None, "other")),
    )
    reason = chance.choice(("stop", "length", "tool_calls", None))
    choices = [{"index": index, "message": message, "finish_reason": reason} for index in range(2)]
    usage = _some(
        chance,
        prompt_tokens=chance.randrange(900),
        completion_tokens=chance.randrange(90),
        total_tokens=chance.randrange(990),
        prompt_tokens_details=chance.choice((None, {"cached_tokens": chance.randrange(9)})),
        completion_tokens_details=chance.choice((None, {"reasoning_tokens": 3})),
    )
    if chance.random() < 0.1:
        usage["cache_read_input_tokens"] = 5
    return _some(chance, id="chat_1", model="m", usage=usage) | {
        "choices": choices[: chance.randrange(3)]
    }


def _messages(chance: random.Random) -> dict[str, Any]:
    blocks = [
        {"type": "tool_use", "id": "t", "name": "add", "input": chance.choice(({}, {"a": 1}))},
        {"type": "thinking", "thinking": "thought", "signature": "s"},
        {"type": "redacted_thinking", "data": "zz"},
        {"type": "text", "text": "hi"},
    ]
    usage = _some(
        chance,
        input_tokens=chance.randrange(900),
        output_tokens=chance.randrange(90),
        cache_read_input_tokens=chance.choice((None, 0, 40)),
        cache_creation_input_tokens=chance.choice((None, 0, 50)),
    )
    return _some(
        chance,
        id="msg_1",
        model="m",
        stop_reason=chance.choice(("end_turn", "tool_use", None)),
        usage=usage,
        content=chance.sample(blocks, chance.randrange(5)),
    )


_SHAPES = {"responses": _responses, "chat": _chat, "messages": _messages}
