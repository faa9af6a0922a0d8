"""A model server's application: capture in front of an engine, or in front of anybody's Starlette or FastAPI app."""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.types import ASGIApp

from otel_gym.capture.capturing import Capture
from otel_gym.capture.middleware import CaptureMiddleware
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.writer import RecordWriter
from otel_gym.correlation.run import Run, open_run
from otel_gym.counters import count
from otel_gym.errors import SettingsError, StoreError
from otel_gym.servers.engine import EngineForwarder
from otel_gym.servers.lifespan import LifespanClose
from otel_gym.servers.trace_context import TraceContext
from otel_gym.servers.upgrades import UpgradeGuard
from otel_gym.settings import ModelServerSettings, Settings, settings_from
from otel_gym.tracing.process_metrics import ProcessMetricsFile

log: Final = logging.getLogger("otel_gym.servers")


class Observability:
    """What one model server process holds for capture and export; closed when it shuts down.

    `capture` is null where observability is off, or where the capture directory cannot be made: the server then serves, says so once and counts it.
    """

    def __init__(self, settings: Settings, server: ModelServerSettings) -> None:
        self.settings = settings
        self.server = server
        self.run: Run | None = None
        self.store: CaptureStore | None = None
        self.writer: RecordWriter | None = None
        self.capture: Capture | None = None
        self.pipeline: Any = None
        self._metrics: Any = None
        self._process_metrics: ProcessMetricsFile | None = None
        self._closed = False
        if settings.observability_enabled and settings.model_call_capture_dir is not None:
            self._open(settings.model_call_capture_dir)

    def _open(self, directory: Path) -> None:
        bridge = self.settings.otel_gym
        try:
            self.writer = RecordWriter(
                directory,
                durability_timeout_s=bridge.capture_durability_timeout,
                queue_max_bytes=bridge.capture_queue_max_bytes,
                file_mode=bridge.capture_file_mode,
                directory_mode=bridge.capture_directory_mode,
                redact=bridge.capture_redact,
            )
            self.run = open_run(directory, run_id=bridge.run_id, file_mode=bridge.capture_file_mode)
        except (StoreError, OSError) as error:
            count("capture.failures")
            log.warning("nothing will be captured: %s", error)
            self.writer = None
            return
        self.store = self.writer.store
        self.capture = Capture(
            self.writer,
            self.run,
            bridge,
            model_server_name=self.server.name,
            engine=engine_of(self.settings, self.server),
        )
        if self.settings.otlp_endpoint is not None and bridge.export == "live":
            self._open_export(self.writer, self.run, directory)
        elif bridge.export == "sidecar":
            self._process_metrics = ProcessMetricsFile(directory, self.writer)
        atexit.register(self.close)

    def _open_export(self, writer: RecordWriter, run: Run, directory: Path) -> None:
        # Imported here: without an endpoint no OpenTelemetry SDK or exporter is loaded.
        from otel_gym.tracing.metrics import install_metrics
        from otel_gym.tracing.pipeline import live_pipeline

        self.pipeline = live_pipeline(self.settings, directory, run)
        if self.pipeline is not None:
            writer.add_listener(self.pipeline.offer)
            self.pipeline.start()
        self._metrics = install_metrics(
            self.settings, run=run, writer=writer, pipeline=self.pipeline
        )

    def close(self) -> None:
        """Drain the records, then the spans, each within `shutdown_timeout`. Safe to call again."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        timeout_s = self.settings.otel_gym.shutdown_timeout
        if self.writer is not None:
            self.writer.close(timeout_s)
        if self.pipeline is not None:
            self.pipeline.close(timeout_s)
        if self._metrics is not None:
            self._metrics.close(timeout_s)
        if self._process_metrics is not None:
            self._process_metrics.close()

    async def aclose(self) -> None:
        """`close`, off the event loop."""
        await asyncio.to_thread(self.close)


def build_model_server(settings: Settings, server: ModelServerSettings) -> ASGIApp:
    """The whole application of `otel-gym serve`: everything is forwarded to the engine, model calls of rollouts are captured.

    Raises `SettingsError` where no engine is configured.
    """
    return build_served_model(settings, server)[0]


def build_served_model(
    settings: Settings, server: ModelServerSettings
) -> tuple[ASGIApp, Observability]:
    """As `build_model_server`, with what was opened for capture and export."""
    if server.engine_url is None:
        raise SettingsError(
            f"{settings.source}: {server.name}: no engine; give --engine URL or the key base_url"
        )
    engine = EngineForwarder(server, request_stream_usage=settings.otel_gym.request_stream_usage)
    observability = Observability(settings, server)

    async def close() -> None:
        await engine.aclose()
        await observability.aclose()

    app: ASGIApp = engine
    if observability.capture is not None:
        app = TraceContext(app)
    app = CaptureMiddleware(app, capture=observability.capture)
    return LifespanClose(UpgradeGuard(app), close), observability


def install_model_call_capture(
    app: Starlette,
    settings: Settings | Mapping[str, Any] | object = None,
    *,
    config: object = None,
    model_server_name: str | None = None,
    global_config_dict: Mapping[str, Any] | None = None,
    num_workers: int | None = None,
    non_generating_requests: frozenset[tuple[str, str]] = frozenset(),
) -> Observability:
    """Put capture on anybody's Starlette or FastAPI application, before it starts to serve.

    `settings` may be `Settings`, a mapping of the configuration file's shape, or Gym's own `ModelCallCaptureConfig`. `config` and `global_config_dict` are Gym's
    names for the last two; its `num_workers` and `non_generating_requests` are accepted and have no meaning here. With observability off the middleware only takes rollout prefixes off. Returns what
    was installed; it is closed when the application shuts down. Raises `SettingsError`.
    """
    if not isinstance(settings, Settings):
        given = [one for one in (settings, config, global_config_dict) if one is not None]
        settings = settings_from(_mapping(given[0] if given else None))
    server = settings.model_servers.get(model_server_name or "") or ModelServerSettings(
        name=model_server_name or "model"
    )
    observability = Observability(settings, server)
    if observability.capture is not None:
        app.add_middleware(TraceContext)
    app.add_middleware(CaptureMiddleware, capture=observability.capture)
    app.add_middleware(LifespanClose, close=observability.aclose)
    return observability


def _mapping(config: object) -> Mapping[str, Any]:
    """A configuration as a mapping: one already, nothing at all, or an object with Gym's two attributes."""
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return config
    names = ("observability_enabled", "model_call_capture_dir")
    return {name: getattr(config, name, None) for name in names}


def engine_of(settings: Settings, server: ModelServerSettings) -> dict[str, Any] | None:
    """The `engine` part of a record: provider, address and port of the engine behind this server, as far as configured. Raises `SettingsError`."""
    engine: dict[str, Any] = {
        "provider": server.provider or settings.otel_gym.provider,
        "address": None,
        "port": None,
    }
    if server.type:
        engine["server_type"] = server.type
    if server.engine_url is not None:
        parts = urlsplit(server.engine_url)
        engine["address"] = parts.hostname
        try:
            port = parts.port
        except ValueError as error:
            raise SettingsError(f"engine URL {server.engine_url!r}: {error}") from None
        engine["port"] = port or {"https": 443, "http": 80}.get(parts.scheme)
    return engine if any(value is not None for value in engine.values()) else None
