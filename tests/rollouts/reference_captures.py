"""Run by a Python that has nemo-gym: its own middleware captures the exchanges of `reference_exchanges.py` into argv[1]."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx
from fastapi import FastAPI
from nemo_gym.base_responses_api_model import ModelCallCaptureConfig, install_model_call_capture

sys.path.insert(0, str(Path(__file__).parent))
from reference_exchanges import CASES, application


async def main() -> None:
    app = FastAPI()
    app.mount("/", application)
    configuration = {"observability_enabled": True, "model_call_capture_dir": sys.argv[1]}
    install_model_call_capture(
        app,
        ModelCallCaptureConfig(**configuration),
        model_server_name="policy",
        global_config_dict=configuration,
        num_workers=1,
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://gym"
    ) as client:
        for path, body in CASES:
            headers = {"x-session-id": "s"}
            await client.post(f"/ng-rollout/7-2{path}", content=body, headers=headers)


asyncio.run(main())
