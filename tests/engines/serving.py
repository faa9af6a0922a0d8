"""A real server on loopback for any ASGI application: uvicorn in a thread, on a free port."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

import uvicorn
from starlette.types import ASGIApp


class Served:
    """Context manager: `with Served(app) as served:` and the application answers at `served.url`."""

    def __init__(self, app: ASGIApp, *, lifespan: str = "auto") -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # asyncio does this only for sockets that it made; accepted ones inherit it.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            ws="none",
            lifespan=lifespan,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )

    def __enter__(self) -> Served:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the server did not start")
            self._thread.join(0.005)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Shut down gracefully; what still runs after a second is cancelled."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
