"""The capture middleware decides: which rollout, which route, captured or only forwarded. An `Exchange` does the rest."""

from __future__ import annotations

import logging
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from otel_gym.capture import current
from otel_gym.capture.capturing import Capture
from otel_gym.capture.exchange import Exchange
from otel_gym.capture.location import PrefixedLocation
from otel_gym.capture.routes import CAPTURED_PATHS, repaired_path
from otel_gym.correlation.prefix import rollout_path_prefix, strip_prefix
from otel_gym.correlation.rollout_id import is_valid
from otel_gym.counters import count

log: Final = logging.getLogger("otel_gym.capture")


class CaptureMiddleware:
    """Pure ASGI middleware in front of a model server.

    Takes the rollout prefix off every request. With a `capture`, a POST to a model route of a rollout becomes a record; without one (observability off), nothing is
    written and prefixed URLs still reach their routes.
    """

    def __init__(self, app: ASGIApp, *, capture: Capture | None = None) -> None:
        self.app = app
        self.capture = capture
        self._repairs_logged: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        prefixed = strip_prefix(scope)
        if prefixed is None:
            if (
                self.capture is not None
                and scope.get("method") == "POST"
                and scope["path"] in CAPTURED_PATHS
            ):
                count("calls.unprefixed")
                self.capture.writer.note_unprefixed()
            await self.app(scope, receive, send)
            return
        rollout_id, scope = prefixed
        path = _route(scope)
        if path not in CAPTURED_PATHS:
            path, scope = self._repaired(path, scope)
        token = current._rollout.set(rollout_id)
        try:
            dialect = CAPTURED_PATHS.get(path) if scope.get("method") == "POST" else None
            if (
                dialect is not None
                and self.capture is not None
                and self.capture.accepts(rollout_id)
            ):
                await Exchange(self.capture, dialect, rollout_id, scope, receive, send).run(
                    self.app
                )
            else:
                await self._forward(rollout_id, scope, receive, send)
        finally:
            current._rollout.reset(token)

    async def _forward(self, rollout_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            prefix = rollout_path_prefix(rollout_id) if is_valid(rollout_id) else ""
            send = PrefixedLocation(prefix, scope).sending(send)
        await self.app(scope, receive, send)

    def _repaired(self, path: str, scope: Scope) -> tuple[str, Scope]:
        """The route that the caller of a prefixed URL meant, and `scope` with it."""
        repaired = repaired_path(path)
        if repaired == path:
            return path, scope
        count("calls.path_repaired")
        if path not in self._repairs_logged and len(self._repairs_logged) < 100:
            self._repairs_logged.add(path)
            log.warning(
                "path %.120r is served as %.120r; give clients a base URL that ends as theirs expect",
                path,
                repaired,
            )
        mount = scope["path"][: len(scope["path"]) - len(path)]
        served = mount + repaired
        return repaired, {**scope, "path": served, "raw_path": served.encode()}


def _route(scope: Scope) -> str:
    """The path below the application's mount."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "") or ""
    return path[len(root) :] if root and path.startswith(root + "/") else path
