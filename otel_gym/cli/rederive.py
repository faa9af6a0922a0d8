"""`otel-gym rederive DIR`: the derived responses computed again from the raw bytes that the lines keep."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import click
import orjson

from otel_gym.capture.line import encode_line
from otel_gym.capture.rederive import rederive
from otel_gym.capture.source import Source
from otel_gym.capture.store import CaptureStore
from otel_gym.cli.options import directory_argument, json_option
from otel_gym.cli.output import counted, existing_directory, print_json, shell_word
from otel_gym.errors import StoreError, UsageProblem
from otel_gym.reports.terminal import printable

COPY_SUFFIX = ".rederived.jsonl"
_SHOWN_CHARACTERS = 60


@dataclass
class Counts:
    """What was looked at and what was found."""

    lines: int = 0
    with_bytes: int = 0
    differing: int = 0
    unreadable: int = 0
    unreadable_rollouts: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)


@click.command()
@directory_argument
@click.argument("rollout_id", metavar="[ROLLOUT_ID]", required=False)
@click.option(
    "--check", is_flag=True, help="Only say what differs; exit code 1 where something does."
)
@json_option
def command(directory: str, rollout_id: str | None, check: bool, as_json: bool) -> None:
    """Derive responses anew from the raw bytes and compare.

    Prints what the bytes in the lines of the capture directory DIR say differently from the stored response. Without --check a repaired copy is
    written beside every file in which something differs (ROLLOUT_ID.rederived.jsonl); the original stays
    as it is. Lines that NeMo Gym wrote are read too. Exit code 1 where a rollout could not be read.
    """
    store = CaptureStore(existing_directory(directory))
    counts = Counts()
    found: list[dict[str, Any]] = []
    for one in _rollouts(store, directory, rollout_id):
        copy = None if check else store.root / f"{one}{COPY_SUFFIX}"
        try:
            for entry in _rollout(store, one, counts, copy):
                if as_json:
                    found.append(entry)
                else:
                    _show(entry)
        except (StoreError, OSError) as error:
            counts.unreadable_rollouts.append(one)
            click.echo(f"otel-gym: {printable(str(error))}", err=True)
    if as_json:
        print_json({**vars(counts), "differences": found})
    else:
        click.echo(
            f"{counted(counts.lines, 'line')}, {counts.with_bytes} with response bytes, "
            f"{counts.differing} read differently, {counts.unreadable} unreadable"
        )
        for path in counts.copies:
            click.echo(f"repaired copy: {path}")
    if counts.unreadable_rollouts or (check and counts.differing):
        raise click.exceptions.Exit(1)


def _rollouts(store: CaptureStore, directory: str, rollout_id: str | None) -> list[str]:
    known = list(store.rollouts())
    if rollout_id is None:
        return known
    if rollout_id not in known:
        raise UsageProblem(
            f"{directory}: no records of rollout {rollout_id!r}; list them with: otel-gym show {shell_word(directory)}"
        )
    return [rollout_id]


def _rollout(
    store: CaptureStore, rollout_id: str, counts: Counts, copy: Path | None
) -> Iterator[dict[str, Any]]:
    """The differences of one rollout, line by line; writes the copy where there are any."""
    differing = 0
    with (
        Source(store.path_for(rollout_id), store.packed_path_for(rollout_id)) as source,
        _replacing(copy, store.file_mode) as out,
    ):
        number = 0
        for _, line in source.lines(0):
            if not line.strip():
                continue
            repaired, entry = _line(line, counts)
            if entry:
                differing += 1
                yield {"rollout_id": rollout_id, "line": number, **entry}
            if out is not None:
                out.write(repaired)
            number += 1
        if out is not None and not differing:
            out.truncate(0)
    counts.differing += differing
    if copy is not None and differing:
        counts.copies.append(str(copy))


def _line(line: bytes, counts: Counts) -> tuple[bytes, dict[str, Any] | None]:
    """The line to write, and what differs in it; a line that is not repaired stays byte for byte."""
    counts.lines += 1
    try:
        raw = orjson.loads(line)
    except ValueError:
        raw = None
    if not isinstance(raw, dict):
        counts.unreadable += 1
        return line, None
    result = rederive(raw)
    if result is None:
        return line, None
    counts.with_bytes += 1
    repaired, differences = result
    if not differences:
        return line, None
    entry = {
        "model_call_id": raw.get("model_call_id"),
        "differences": [
            {"path": one.path, "stored": one.stored, "derived": one.derived} for one in differences
        ],
    }
    return encode_line(repaired), entry


@contextmanager
def _replacing(path: Path | None, mode: int) -> Iterator[BinaryIO | None]:
    """A file that takes the place of `path` when it is whole; an empty one leaves nothing."""
    if path is None:
        yield None
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
            written = os.fstat(out.fileno()).st_size
        if written:
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _show(entry: dict[str, Any]) -> None:
    call = printable(str(entry["model_call_id"]), 80)
    click.echo(f"{entry['rollout_id']} line {entry['line']} ({call})")
    for one in entry["differences"]:
        click.echo(
            f"  {printable(one['path'])}: {_short(one['stored'])} -> {_short(one['derived'])}"
        )


def _short(value: object) -> str:
    text = printable(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
