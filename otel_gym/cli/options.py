"""What several commands ask for, in one wording: options, and the types that refuse what cannot be meant."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    TextType = click.ParamType[str]
else:  # Not generic before click 8.4.
    TextType = click.ParamType


class Named(TextType):
    """Text in which something is named: an unset variable in a script must not become the current directory or every address."""

    def __init__(self, name: str, *, is_printable: bool = False) -> None:
        self.name = name
        self._is_printable = is_printable

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail(f"is empty; give a {self.name}", param, ctx)
        if self._is_printable and not str(value).isprintable():
            self.fail(f"{value!r} has characters that cannot be printed", param, ctx)
        return str(value)


class Url(TextType):
    """An http or https URL with a host, and a port that exists where it names one."""

    name = "URL"

    def __init__(self, example: str) -> None:
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_http_url(str(value)):
            self.fail(_no_url(param, value, self._example), param, ctx)
        return str(value)


class OtlpUrl(TextType):
    """An OTLP endpoint as the exporter variables have it: for grpc also the path of a socket."""

    name = "URL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from otel_gym.tracing.endpoint import traces_endpoint

        text = str(value)
        is_url = "://" in text or text.startswith("unix:")
        if not is_url or traces_endpoint(text, explicit=True) is None:
            self.fail(_no_url(param, text, "http://127.0.0.1:4318"), param, ctx)
        return text


class Seconds(click.FloatRange):
    """A length of time in seconds; `nan` and `inf` are none."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no length of time", param, ctx)
        return number


def _no_url(param: click.Parameter | None, value: object, example: str) -> str:
    what = (param.name if param is not None else None) or "URL"
    return f"{what.replace('_', ' ')} {value!r}: must be a URL such as {example}"


def is_http_url(text: str) -> bool:
    """Whether a client can be sent to `text`."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    printable = text.isprintable() and " " not in text
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and printable


DIRECTORY: Final = Named("DIR")
FILE: Final = Named("FILE")
ADDRESS: Final = Named("ADDRESS")

Command = TypeVar("Command", bound=Callable[..., Any])

directory_argument = click.argument("directory", metavar="DIR")
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON value on stdout, and nothing else."
)
rollouts_option = click.option(
    "--rollout", "rollouts", multiple=True, metavar="ID", help="Only this rollout; may be repeated."
)
run_id_option = click.option(
    "--run-id",
    type=Named("ID", is_printable=True),
    metavar="ID",
    help="Name of the run, for a directory that has none yet.",
)


def config_option(use: str = "as NeMo Gym has it") -> Callable[[Command], Command]:
    """`--config FILE`; `use` says what is taken from it."""
    return click.option("--config", type=FILE, metavar="FILE", help=f"YAML configuration, {use}.")
