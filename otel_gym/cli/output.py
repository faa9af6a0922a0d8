"""What commands print: JSON on stdout for machines, tables for people, and nothing else there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import click
import orjson
from rich.console import Console

from otel_gym.errors import UsageProblem

PIPED_WIDTH: Final = 120
"""Width of tables that nobody's terminal bounds, in columns."""


def console(*, stderr: bool = False) -> Console:
    """A console for tables; where the output is piped, a width of its own that cuts nothing off."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else PIPED_WIDTH)


def print_json(value: Any) -> None:
    """`value` as one line of JSON on stdout."""
    click.echo(
        orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode("utf-8", "replace")
    )


def existing_directory(path: str | Path) -> Path:
    """`path` as an absolute directory. Raises `UsageProblem` where it is none or cannot be read."""
    directory = Path(path).absolute()
    if not directory.exists():
        raise UsageProblem(f"{path}: no such directory; name a capture directory")
    if not directory.is_dir():
        raise UsageProblem(
            f"{path}: is not a directory; name the directory that holds the .capture.jsonl files"
        )
    try:
        next(directory.iterdir(), None)
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read: {error.strerror}") from None
    return directory
