"""`otel-gym view`: the rollouts of a directory in the browser, and as a Jaeger-compatible API."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket

import click

from otel_gym.cli.options import ADDRESS, Url, directory_argument
from otel_gym.cli.output import existing_directory
from otel_gym.errors import UsageProblem
from otel_gym.settings import load_settings
from otel_gym.tracing.options import span_options
from otel_gym.viewer.options import ViewerOptions
from otel_gym.viewer.serve import is_loopback, listen, serve


@click.command()
@directory_argument
@click.option(
    "--host",
    type=ADDRESS,
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on; beyond loopback a token is asked for.",
)
@click.option(
    "--port",
    default=8687,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--jaeger-ui",
    type=Url("http://localhost:16686"),
    metavar="URL",
    help="Base URL of a Jaeger UI that the pages link to.",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Host name that requests may be addressed to; may be repeated.",
)
@click.option(
    "--token",
    envvar="OTEL_GYM_VIEW_TOKEN",
    metavar="TOKEN",
    help="The token to ask for; made up where one is needed.  [env: OTEL_GYM_VIEW_TOKEN]",
)
@click.option(
    "--no-index",
    is_flag=True,
    help="Keep the index in memory instead of under DIR/.otel-gym/viewer.",
)
def command(
    directory: str,
    host: str,
    port: int,
    jaeger_ui: str | None,
    allow_host: tuple[str, ...],
    token: str | None,
    no_index: bool,
) -> None:
    """Show a capture directory in the browser, live.

    The pages follow the files of DIR while they are written. Nothing can be changed through them.
    """
    root = existing_directory(directory)
    if token is not None and not (
        token.isascii()
        and token.isprintable()
        and len(token) >= 16
        and not set(token) & set(' ",;\\')
    ):
        raise UsageProblem(
            "--token: needs at least 16 printable ASCII characters without spaces, quotes, commas, semicolons and backslashes"
        )
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    machine = socket.gethostname().lower()
    # With a token, this machine's own name is as good as its addresses.
    names = {name.lower() for name in allow_host} | ({machine} if token else set())
    listener = listen(host, port)
    options = ViewerOptions(
        directory=root,
        jaeger_ui=jaeger_ui.rstrip("/") if jaeger_ui else None,
        token=token,
        hosts=frozenset(names),
        keep_index=not no_index,
        span_options=span_options(load_settings()),
    )
    shown = machine if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}/" + (f"?token={token}" if token else "")

    def ready() -> None:
        click.echo(f"{root} at {address}")
        click.echo(
            f"Jaeger-compatible API at http://{shown}:{listener.getsockname()[1]}/api/traces; end with Ctrl-C",
            err=True,
        )

    # The server takes signals while it runs, and gives them back to these when it has ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        serve(options, listener, ready)
