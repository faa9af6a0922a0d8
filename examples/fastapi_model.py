"""Capture on somebody's own FastAPI model server: one line, before it serves.

python examples/fastapi_model.py config.yaml
"""

import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from otel_gym.servers.model import install_model_call_capture
from otel_gym.settings import Settings, load_settings


def build(settings: Settings) -> FastAPI:
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def chat_completions(body: dict[str, Any]) -> dict[str, Any]:
        text = body["messages"][-1]["content"][::-1]
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": len(text), "completion_tokens": len(text)}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": "reverser",
            "choices": [choice],
            "usage": {**usage, "total_tokens": 2 * len(text)},
        }

    install_model_call_capture(app, settings, model_server_name="reverser")
    return app


if __name__ == "__main__":
    uvicorn.run(build(load_settings(Path(sys.argv[1]))), port=8000)
