"""A model server that is born again and again: `python server.py DIRECTORY` forks a server whenever a line comes on stdin.

The parent has everything imported, so that a server is ready in milliseconds; each child makes its own writer, listens on a port of its own, and prints
`<pid> <port>`. The parent reaps the children, however they end.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from otel_gym.capture.capturing import Capture
from otel_gym.capture.middleware import CaptureMiddleware
from otel_gym.capture.writer import RecordWriter
from otel_gym.correlation.run import open_run
from otel_gym.settings import BridgeSettings


async def chat(request: Request) -> Response:
    """Answer a chat call, streamed where asked."""
    body = await request.json()
    if not body.get("stream"):
        message = {"role": "assistant", "content": "yes"}
        return JSONResponse(
            {
                "id": "c",
                "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            }
        )

    async def events():  # type: ignore[no-untyped-def]
        for text in ("y", "e", "s"):
            delta = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": text}}]}
            yield f"data: {json.dumps(delta)}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


def serve(directory: Path, listener: socket.socket) -> None:
    """One server, until somebody ends it."""
    writer = RecordWriter(directory)
    capture = Capture(writer, open_run(directory), BridgeSettings(), model_server_name="model")
    app = CaptureMiddleware(
        Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])]), capture=capture
    )
    config = uvicorn.Config(app, log_level="critical", lifespan="off", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])
    writer.close(10)


def main(directory: Path) -> None:
    """Fork a server a line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                serve(directory, listener)
            finally:
                os._exit(0)
        sys.stdout.write(f"{pid} {listener.getsockname()[1]}\n")
        sys.stdout.flush()
        listener.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
