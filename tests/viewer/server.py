"""A viewer served on loopback, for tests and the benchmark."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import uvicorn

from otel_gym.viewer.app import create_app
from otel_gym.viewer.index.indexer import Index
from otel_gym.viewer.options import ViewerOptions
from otel_gym.viewer.serve import listen


class RunningViewer:
    """A viewer served by uvicorn in a thread."""

    def __init__(self, options: ViewerOptions, host: str = "127.0.0.1") -> None:
        self._listener = listen(host, 0)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        app = create_app(options)
        self.index: Index = app.state.index
        self._server = uvicorn.Server(
            uvicorn.Config(
                app, log_level="warning", lifespan="on", timeout_graceful_shutdown=1, loop="asyncio"
            )
        )
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve(sockets=[self._listener])), daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + 20
        while not (self._server.started and self.index.progress.first_done):
            assert time.monotonic() < deadline, "the viewer does not start"
            time.sleep(0.01)
        self.client = httpx.Client(base_url=self.url, timeout=20)

    def json(self, path: str, **query: Any) -> Any:
        """The JSON of a page that must be there."""
        answer = self.client.get(path, params=query or None)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def page(self, path: str, **query: Any) -> str:
        """The HTML of a page that must be there."""
        answer = self.client.get(path, params=query or None)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return answer.text

    def stop(self) -> None:
        """End it."""
        self.client.close()
        self._server.should_exit = True
        self._thread.join(timeout=10)
        assert not self._thread.is_alive()


View = Callable[..., RunningViewer]
