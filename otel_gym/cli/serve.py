"""`otel-gym serve`: a transparent model server in front of an engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from otel_gym.capture.store import CaptureStore
from otel_gym.cli.options import (
    ADDRESS,
    DIRECTORY,
    OtlpUrl,
    Url,
    config_option,
    is_http_url,
    run_id_option,
)
from otel_gym.correlation.run import open_run, read_run
from otel_gym.errors import OtelGymError, StoreError, UsageProblem
from otel_gym.reports.terminal import printable
from otel_gym.sampling.pairs import pairs
from otel_gym.sampling.profile import SamplingProfile, profile_of
from otel_gym.servers.listening import Listener, serve
from otel_gym.servers.model import build_model_server
from otel_gym.settings import ModelServerSettings, Settings, load_settings

PROBE_TIMEOUT_S: Final = 2.0


@click.command()
@click.option(
    "--engine",
    type=Url("http://127.0.0.1:8000"),
    metavar="URL",
    help="URL of the engine, with or without /v1.",
)
@click.option(
    "--capture-dir",
    type=DIRECTORY,
    metavar="DIR",
    help="Where records go; without it nothing is captured.",
)
@click.option(
    "--otlp-endpoint",
    type=OtlpUrl(),
    metavar="URL",
    help="OTLP backend that gets a span per record.",
)
@config_option()
@click.option(
    "--host", type=ADDRESS, metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]"
)
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one."
)
@click.option(
    "--name",
    metavar="NAME",
    help="Name of the model server in the configuration and in records.",
)
@click.option(
    "--sampling",
    "pins",
    multiple=True,
    metavar="NAME=VALUE",
    help="Sampling parameter that replaces the caller's; may be repeated.",
)
@run_id_option
def command(
    engine: str | None,
    capture_dir: str | None,
    otlp_endpoint: str | None,
    config: str | None,
    host: str | None,
    port: int | None,
    name: str | None,
    pins: tuple[str, ...],
    run_id: str | None,
) -> None:
    """Serve an engine's API and record its model calls.

    Everything is forwarded to the engine; each model call made below /ng-rollout/<rollout id> becomes a record. Refuses to start where it is to capture and
    the directory cannot be used.
    """
    logging.basicConfig(level=logging.WARNING, format="otel-gym: %(message)s")
    settings = _settings(config, capture_dir, otlp_endpoint, run_id)
    server = _server(settings, engine, name, pins)
    profile = profile_of(
        server.sampling_overrides,
        allow_unknown=server.sampling_allow_unknown,
        where=f"{server.name}.sampling_overrides",
    )
    listener = Listener(host or server.host, port if port is not None else server.port or 0)
    with contextlib.closing(listener.socket):
        _check_directory(settings)
        app = build_model_server(settings, server)

        async def started() -> None:
            for line in _start_up_lines(settings, server, profile, listener):
                click.echo(line)
            await _warn_of_unreachable_engine(server)

        serve(app, listener, started=started, shutdown_timeout_s=settings.otel_gym.shutdown_timeout)


def _settings(
    config: str | None, capture_dir: str | None, otlp_endpoint: str | None, run_id: str | None
) -> Settings:
    overrides: dict[str, Any] = {}
    own: dict[str, Any] = {}
    if capture_dir is not None:
        overrides["observability_enabled"] = True
        overrides["model_call_capture_dir"] = str(Path(capture_dir).absolute())
    if otlp_endpoint is not None:
        own["otlp_endpoint"] = otlp_endpoint
    if run_id is not None:
        own["run_id"] = run_id
    if own:
        overrides["otel_gym"] = own
    settings = load_settings(Path(config) if config else None, overrides=overrides)
    if otlp_endpoint is not None and settings.otlp_endpoint is not None:
        # A flag was typed for this very run; only OTEL_SDK_DISABLED and its like stand above it.
        settings = settings.model_copy(update={"otlp_endpoint": otlp_endpoint})
    return settings


def _server(
    settings: Settings, engine: str | None, name: str | None, pins: tuple[str, ...]
) -> ModelServerSettings:
    if settings.model_servers:
        server = settings.model_server(name)
    else:
        server = ModelServerSettings(name=name or "model")
    changed: dict[str, Any] = {}
    if engine is not None:
        changed["base_url"] = engine
    if pins:
        changed["sampling_overrides"] = {
            **(server.sampling_overrides or {}),
            **pairs("--sampling", pins),
        }
    server = server.model_copy(update=changed)
    if server.engine_url is None:
        raise UsageProblem("no engine; give --engine URL, or --config FILE with a base_url")
    if not is_http_url(server.engine_url):
        raise UsageProblem(
            f"{settings.source}: {server.name}: base_url {server.engine_url!r} must be a URL such as http://127.0.0.1:8000/v1"
        )
    return server


def _check_directory(settings: Settings) -> None:
    """Raises `UsageProblem` where nothing could be captured although it is to be: a run without its evidence is played twice."""
    directory = settings.model_call_capture_dir
    if not settings.observability_enabled or directory is None:
        return
    bridge = settings.otel_gym
    try:
        CaptureStore(
            directory,
            file_mode=bridge.capture_file_mode,
            directory_mode=bridge.capture_directory_mode,
        )
        open_run(directory, run_id=bridge.run_id, file_mode=bridge.capture_file_mode)
    except StoreError as error:
        raise UsageProblem(f"nothing could be captured: {error}") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageProblem(f"nothing could be captured: {directory}: cannot be written")


def _start_up_lines(
    settings: Settings, server: ModelServerSettings, profile: SamplingProfile, listener: Listener
) -> list[str]:
    directory = settings.model_call_capture_dir if settings.observability_enabled else None
    if directory is None:
        capture = "off; give --capture-dir DIR"
    else:
        capture = str(directory)
        with contextlib.suppress(OtelGymError, OSError):
            run = read_run(directory)
            capture += f" (run {printable(run.run_id, 200)})" if run else ""
    if directory is None:
        export = "off; nothing is captured"
    elif settings.otel_gym.export != "live":
        export = f"off; export is {settings.otel_gym.export!r}"
    else:
        export = settings.otlp_endpoint or "off; give --otlp-endpoint URL"
    return [
        f"listening {listener.url} (a rollout's base URL: {listener.url}/ng-rollout/<rollout id>/v1)",
        f"engine    {_without_user(server.engine_url or '')}",
        f"capture   {capture}",
        f"sampling  {profile.describe()}",
        f"export    {export}",
    ]


def _without_user(url: str) -> str:
    """`url` without user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


async def _warn_of_unreachable_engine(server: ModelServerSettings) -> None:
    parts = urlsplit(server.engine_url or "")
    port = parts.port or {"https": 443}.get(parts.scheme, 80)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(parts.hostname or "", port)
        writer.close()
    except (OSError, TimeoutError) as error:
        number = getattr(error, "errno", None)
        reason = (
            os.strerror(number) if number and number > 0 else str(error) or type(error).__name__
        )
        click.echo(
            f"warning   the engine cannot be reached yet ({reason}); calls are answered with 502 until it can",
            err=True,
        )
