"""Records for tests, built by the format page: those of our own server, and those of NeMo Gym, which lack our keys."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson

from otel_gym.capture.written import Written

BASE_TIME = 1_790_000_000.25


def call_id(number: int) -> str:
    """A model call id that only depends on `number`."""
    return hashlib.md5(f"call {number}".encode(), usedforsecurity=False).hexdigest()


def gym_record(number: int = 0, dialect: str = "chat", **changes: Any) -> dict[str, Any]:
    """A line as NeMo Gym writes it: its keys in its order, nothing of ours."""
    record: dict[str, Any] = {
        "model_call_id": call_id(number),
        "dialect": dialect,
        "model_ref": {"type": "responses_api_models", "name": "policy_model"},
        "started_at": BASE_TIME + number * 2,
        "completed_at": BASE_TIME + number * 2 + 1.5,
        "latency_ms": 1500.0,
        "latency_ttft_ms": 1490.25,
        "status_code": 200,
        "error_category": None,
        "request": REQUESTS[dialect],
        "response": RESPONSES[dialect],
    }
    record.update(changes)
    return {key: value for key, value in record.items() if value is not ...}


REQUESTS: dict[str, dict[str, Any]] = {
    "chat": {
        "model": "qwen3-8b",
        "messages": [
            {"role": "system", "content": "Answer briefly."},
            {"role": "user", "content": [{"type": "text", "text": "What is in the picture?"}]},
        ],
        "temperature": 0.7,
        "top_p": 0.95,
        "max_tokens": 512,
        "seed": 7,
        "stop": ["END"],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "description": "Looks.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
    },
    "responses": {
        "model": "gpt-5.6",
        "instructions": "Answer briefly.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "max_output_tokens": 100,
        "reasoning": {"effort": "high"},
        "previous_response_id": "resp_0",
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": {}}},
    },
    "messages": {
        "model": "claude-sonnet-5",
        "max_tokens": 1024,
        "system": [{"type": "text", "text": "Answer briefly."}],
        "messages": [{"role": "user", "content": "Hi"}],
        "top_k": 40,
        "stop_sequences": ["END"],
        "output_config": {"effort": "low"},
        "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}],
    },
    "completions": {"model": "smol", "prompt": "Once upon", "max_tokens": 16, "n": 2},
}

RESPONSES: dict[str, dict[str, Any]] = {
    "chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "qwen3-8b",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "Let me look.",
                    "reasoning_content": "I need to look.",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "look", "arguments": '{"at": "picture"}'},
                        }
                    ],
                },
            }
        ],
        "usage": {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 64},
            "completion_tokens_details": {"reasoning_tokens": 12},
        },
    },
    "responses": {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "gpt-5.6",
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Think."}]},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hello."}],
            },
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        ],
        "usage": {
            "input_tokens": 11,
            "output_tokens": 22,
            "total_tokens": 33,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 5},
        },
    },
    "messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [
            {"type": "thinking", "thinking": "Think.", "signature": "s"},
            {"type": "text", "text": "Hello."},
            {"type": "tool_use", "id": "tu_1", "name": "look", "input": {"at": "picture"}},
        ],
        "stop_reason": "tool_use",
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 7,
            "output_tokens": 20,
        },
    },
    "completions": {
        "id": "cmpl-1",
        "object": "text_completion",
        "model": "smol",
        "choices": [
            {"index": 0, "text": " a time", "finish_reason": "length"},
            {"index": 1, "text": " a mouse", "finish_reason": "stop"},
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 8, "total_tokens": 10},
    },
}


def append(directory: Path, rollout_id: str, record: dict[str, Any]) -> Written:
    """Appends a line as a writer does, and gives what the writer would tell its listeners."""
    path = directory / f"{rollout_id}.capture.jsonl"
    line = orjson.dumps(record) + b"\n"
    offset = path.stat().st_size if path.exists() else 0
    with path.open("ab") as file:
        file.write(line)
    return Written(rollout_id, record, path, offset, len(line))


def fill(directory: Path, rollouts: int, calls: int, **changes: Any) -> list[Written]:
    """A directory of `rollouts` times `calls` records over all dialects."""
    dialects = list(REQUESTS)
    written = []
    for rollout in range(rollouts):
        for call in range(calls):
            number = rollout * calls + call
            record = gym_record(number, dialects[number % len(dialects)], **changes)
            written.append(append(directory, f"{rollout}-0", record))
    return written
