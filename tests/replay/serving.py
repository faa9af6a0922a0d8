"""A policy server whose answers a test decides."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response


@dataclass
class PolicyServer:
    """`answers` are given in order, as an object, bytes, or a status; `requests` are what came in."""

    url: str = ""
    answers: list[Any] = field(default_factory=list)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        self.requests.append((request.url.path, json.loads(await request.body())))
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            return Response(b"{}", status_code=answer)
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            return Response(b"{}")
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return Response(content, media_type="application/json")
