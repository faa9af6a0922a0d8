"""Finished exchanges to write, and ways to look at what became of them."""

from __future__ import annotations

import os
import time
import uuid
import warnings
from pathlib import Path

import orjson

from otel_gym.capture.facts import ExchangeFacts
from otel_gym.capture.tape import BodyTape

_MAX_BODY_BYTES = 64 * 1024 * 1024


def finished_call(
    rollout_id: str,
    *,
    call_id: str | None = None,
    prompt: str = "x" * 200,
    started_at: float | None = None,
    lasted_s: float = 0.01,
) -> ExchangeFacts:
    """The facts of a chat call that went well."""
    request = BodyTape(_MAX_BODY_BYTES)
    request.append(orjson.dumps({"model": "m", "messages": [{"role": "user", "content": prompt}]}))
    response = BodyTape(_MAX_BODY_BYTES)
    response.append(
        orjson.dumps(
            {
                "id": "c",
                "model": "m",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "yes"},
                        "finish_reason": "stop",
                    }
                ],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            }
        )
    )
    began = time.time() if started_at is None else started_at
    return ExchangeFacts(
        model_call_id=call_id or uuid.uuid4().hex,
        rollout_id=rollout_id,
        dialect="chat",
        started_at=began,
        completed_at=began + lasted_s,
        latency_ms=lasted_s * 1e3,
        latency_ttft_ms=1.0,
        status_code=200,
        ending="returned",
        request=request,
        response=response,
        response_content_type="application/json",
    )


def ids_in(path: Path) -> list[str]:
    """The call ids of a capture file, in order; every line must be a record."""
    if not path.exists():
        return []
    return [orjson.loads(line)["model_call_id"] for line in path.read_bytes().splitlines()]


def fork() -> int:
    """`os.fork`, without the warning of Python 3.12 about threads: what a fork does to them is what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
