"""What commands print: JSON on stdout for machines, tables for people, and nothing else there."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import click
import orjson
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from otel_gym.capture.record import ModelCallRecord
from otel_gym.errors import UsageProblem
from otel_gym.reports.terminal import printable
from otel_gym.reports.waterfall import waterfall

PIPED_WIDTH: Final = 120
"""Width of tables that nobody's terminal bounds, in columns."""
_UNBOUNDED_WIDTH: Final = 10_000
_NAMED: Final = 5
"""Directories that one line names."""


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A console for tables; where the output is piped, a width of its own that cuts nothing off."""
    stream = sys.stderr if stderr else sys.stdout
    if width is None and (stream is None or not stream.isatty()):
        width = PIPED_WIDTH
    return Console(stderr=stderr, highlight=False, width=width)


def print_table(table: Table) -> None:
    """`table` on stdout, never narrower than its figures: a terminal that is too narrow wraps the lines."""
    screen = console(width=_UNBOUNDED_WIDTH)
    natural = Measurement.get(screen, screen.options, table).maximum
    console(width=max(console().width, natural)).print(table)


def print_waterfall(records: Sequence[ModelCallRecord], title: str) -> None:
    """A rollout's calls on a time axis on stdout, in characters that it can show."""
    screen = console()
    ascii_only = not screen.encoding.lower().startswith("utf")
    print_table(waterfall(records, title, width=screen.width, ascii_only=ascii_only))


def print_json(value: Any) -> None:
    """`value` as one line of JSON on stdout, in UTF-8 whatever the locale."""
    try:
        line = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # A path that is no UTF-8.
        line = json.dumps(value, default=str).encode("ascii")
    click.echo(line)


def shell_word(path: str | Path) -> str:
    """`path` as it can be pasted into a shell."""
    return shlex.quote(str(path))


def counted(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def nothing_in(directory: Path) -> str:
    """What to say of a directory without captures; where directories below it have some, it names them."""
    below = sorted(
        child.name
        for child in directory.iterdir()
        if child.is_dir() and next(child.glob("*.capture.jsonl*"), None) is not None
    )
    text = f"no captures in {directory}"
    if below:
        text += f"; there are some below it, in {', '.join(map(printable, below[:_NAMED]))}"
    return text + (", ..." if len(below) > _NAMED else "")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` once it is whole; if anything fails, `path` stays as it was. Raises `UsageProblem`."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        file = temporary.open("wb")
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def existing_directory(path: str | Path) -> Path:
    """`path` as an absolute directory. Raises `UsageProblem` where it is none or cannot be read."""
    if not str(path):
        raise UsageProblem("the directory's name is empty; name a capture directory")
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
