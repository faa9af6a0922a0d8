"""Capture directories for the viewer's tests, written line by line in the record format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RUN_ID = "run-of-the-viewer-tests"
EPOCH = 1_790_000_000.0
"""Start of the first call, Unix seconds."""


def call_id(rollout_id: str, number: int) -> str:
    """A model call id that depends on its place alone."""
    return hashlib.md5(f"{rollout_id}/{number}".encode(), usedforsecurity=False).hexdigest()


def chat_call(
    rollout_id: str,
    number: int,
    messages: list[dict[str, Any]],
    answer: Mapping[str, Any],
    *,
    at: float = 0.0,
    seconds: float = 1.0,
    tokens: tuple[int, int, int] | None = (100, 20, 60),
    **more: Any,
) -> dict[str, Any]:
    """A streamed Chat Completions call that starts `at` seconds after `EPOCH`; `tokens` are input, output and cached ones."""
    response: dict[str, Any] = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "model": "smol-135m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", **answer},
                "finish_reason": "tool_calls" if answer.get("tool_calls") else "stop",
            }
        ],
    }
    if tokens is not None:
        response["usage"] = {
            "prompt_tokens": tokens[0],
            "completion_tokens": tokens[1],
            "prompt_tokens_details": {"cached_tokens": tokens[2]},
        }
    record: dict[str, Any] = {
        "model_call_id": call_id(rollout_id, number),
        "dialect": "chat",
        "model_ref": {"type": "responses_api_models", "name": "policy"},
        "started_at": EPOCH + at,
        "completed_at": EPOCH + at + seconds,
        "latency_ms": round(seconds * 1000, 2),
        "latency_ttft_ms": round(seconds * 250, 2),
        "status_code": 200,
        "error_category": None,
        "request": {
            "model": "smol",
            "temperature": 0.7,
            "stream": True,
            "messages": messages,
        },
        "response": response,
        "response_raw": f"data: {json.dumps(response)}\n\ndata: [DONE]\n\n",
        "schema": 1,
        "rollout_id": rollout_id,
        "stream": {"chunks": 12, "terminal": "complete"},
        "engine": {"provider": "llama.cpp", "address": "127.0.0.1", "port": 8080},
        "sampling": {
            "requested": {"temperature": 0.7},
            "pinned": {"top_p": 0.9},
            "effective": {"temperature": 0.7, "top_p": 0.9},
        },
    }
    record.update(more)
    return record


def conversation(
    rollout_id: str, turns: int, *, start: float = 0.0, cached: bool = True
) -> list[dict[str, Any]]:
    """A rollout whose every call repeats what was said before and adds a tool's result."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful calculator."},
        {"role": "user", "content": f"What is the answer of task {rollout_id}?"},
    ]
    records = []
    at = start
    for number in range(turns):
        last = number == turns - 1
        answer: dict[str, Any] = (
            {"content": "The answer is 42.", "reasoning_content": "I have all the numbers now."}
            if last
            else {
                "content": None,
                "tool_calls": [
                    {
                        "id": f"call_{number}",
                        "type": "function",
                        "function": {"name": "add", "arguments": f'{{"a": {number}, "b": 1}}'},
                    }
                ],
            }
        )
        tokens_in = 120 + 45 * number
        tokens = (tokens_in, 18, tokens_in - 50 if cached and number else 0)
        records.append(
            chat_call(rollout_id, number, list(messages), answer, at=at, seconds=0.8, tokens=tokens)
        )
        messages.append({"role": "assistant", **answer})
        messages.append(
            {"role": "tool", "tool_call_id": f"call_{number}", "content": f"{number + 1}"}
        )
        at += 1.1
    return records


def write_run(directory: Path, run_id: str = RUN_ID) -> Path:
    """Makes `directory` a run."""
    directory.mkdir(parents=True, exist_ok=True)
    run = {
        "schema": 1,
        "run_id": run_id,
        "created_at": EPOCH,
        "resource": {"service.name": "otel-gym", "host.name": "testhost"},
    }
    (directory / "run.json").write_text(json.dumps(run))
    return directory


def append(directory: Path, rollout_id: str, records: list[dict[str, Any]]) -> Path:
    """Appends records to a rollout's file."""
    path = directory / f"{rollout_id}.capture.jsonl"
    with path.open("ab") as file:
        for record in records:
            file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
    return path


def write_rollout(directory: Path, rollout_id: str, **values: Any) -> Path:
    """Writes a rollout's own record."""
    record = {
        "schema": 1,
        "rollout_id": rollout_id,
        "started_at": EPOCH - 0.5,
        "completed_at": EPOCH + 30.0,
        "agent": "simple_agent",
        "totals": {},
        **values,
    }
    path = directory / f"{rollout_id}.rollout.json"
    path.write_text(json.dumps(record))
    return path


def small_run(directory: Path) -> Path:
    """A run of a few rollouts: attempts, an error, a truncation, parallel calls, an incomplete one."""
    write_run(directory)
    append(directory, "0-0", conversation("0-0", 5))
    write_rollout(directory, "0-0", reward=1.0)
    append(directory, "0-1", conversation("0-1", 3, start=2.0))
    write_rollout(directory, "0-1", reward=0.0)
    failing = conversation("1-0", 2, start=4.0)
    failing[-1].update(
        error_category="upstream_error", status_code=500, response=None, response_raw="boom"
    )
    append(directory, "1-0", failing)
    (directory / "1-0.capture.incomplete").touch()
    retried = conversation("1-0-a1", 4, start=9.0)
    retried[1]["response"]["choices"][0]["finish_reason"] = "length"
    for number in (2, 3):
        retried[number]["started_at"] = EPOCH + 13.0 + 0.1 * number
        retried[number]["completed_at"] = EPOCH + 14.5
    append(directory, "1-0-a1", retried)
    append(directory, "judge.of_everything", conversation("judge.of_everything", 1, start=20.0))
    return directory
