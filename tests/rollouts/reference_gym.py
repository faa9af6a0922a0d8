"""Run by a Python that has nemo-gym: its own middleware captures calls into argv[1], its own merge attaches them to rows, printed as JSON lines."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from nemo_gym.base_responses_api_model import (
    ModelCallCaptureConfig,
    install_model_call_capture,
    merge_model_call_capture_into_record,
)
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body

ROWS = [
    {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0},
    {"_ng_task_index": 0, "_ng_rollout_index": 1, "_ng_attempt_index": 2, "reward": 0.0},
    {"_ng_rollout_id": "named", "reward": 0.5},
    {"_ng_task_index": 9, "_ng_rollout_index": 9},
]


def application(directory: str) -> FastAPI:
    """A model server with Gym's capture."""
    app = FastAPI()

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(request: Request) -> JSONResponse | StreamingResponse:
        body = await request.json()
        if body.get("fail"):
            return JSONResponse({"error": {"message": "no"}}, status_code=500)
        usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
        usage["prompt_tokens_details"] = {"cached_tokens": 4}  # type: ignore[assignment]
        base = {"id": "c", "model": "m", "created": 1}
        if not body.get("stream"):
            call = {"id": "t", "function": {"name": "add", "arguments": '{"a": 1}'}}
            message = {"role": "assistant", "content": "yo", "tool_calls": [call]}
            choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
            return JSONResponse({**base, "choices": [choice], "usage": usage})
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "y"}}]},
            {"choices": [{"index": 0, "delta": {"content": "o"}, "finish_reason": "stop"}]},
            {"choices": [], "usage": usage},
        ]
        events = [f"data: {json.dumps({**base, **one})}\n\n" for one in chunks]
        return StreamingResponse(
            iter([*events, "data: [DONE]\n\n"]), media_type="text/event-stream"
        )

    configuration = {"observability_enabled": True, "model_call_capture_dir": directory}
    install_model_call_capture(
        app,
        ModelCallCaptureConfig(**configuration),
        model_server_name="policy_model",
        global_config_dict=configuration,
        num_workers=1,
    )
    return app


async def main() -> None:
    directory = sys.argv[1]
    transport = httpx.ASGITransport(application(directory))
    async with httpx.AsyncClient(transport=transport, base_url="http://gym") as client:
        for row in ROWS[:3]:
            prefix = f"/ng-rollout/{maybe_rollout_id_from_run_body(row)}"
            for more in ({}, {"stream": True}, {"fail": True}):
                body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **more}
                await client.post(f"{prefix}/v1/chat/completions", json=body)
    for row in ROWS:
        merge_model_call_capture_into_record(row, [Path(directory)])
        sys.stdout.write(json.dumps(row) + "\n")


asyncio.run(main())
