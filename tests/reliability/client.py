"""A client that knows exactly what it has seen of each answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json

_markers = itertools.count()


async def call(port: int, rollout_id: str, *, stream: bool) -> str | None:
    """One call on a connection of its own; its marker where the end of the answer was seen, else null."""
    marker = f"m{next(_markers)}"
    body = json.dumps({"model": "m", "user": marker, "stream": stream, "messages": []}).encode()
    head = (
        f"POST /ng-rollout/{rollout_id}/v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    answer = b""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return None
    try:
        writer.write(head.encode() + body)
        while piece := await reader.read(65536):
            answer += piece
    except OSError:
        pass
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    ended = b"data: [DONE]" in answer if stream else answer.endswith(b'"finish_reason":"stop"}]}')
    return marker if ended else None
