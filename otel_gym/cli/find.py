"""`otel-gym find`: from an id in a trace back to the record."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_gym.cli.options import directory_argument, json_option
from otel_gym.cli.output import existing_directory, print_json
from otel_gym.correlation.run import read_run
from otel_gym.errors import UsageProblem
from otel_gym.reports.terminal import printable

if TYPE_CHECKING:
    from otel_gym.tracing.find import Found


@click.command()
@click.argument("wanted", metavar="TRACE_OR_SPAN_OR_CALL_ID")
@directory_argument
@json_option
def command(wanted: str, directory: str, as_json: bool) -> int:
    """Find the record that a trace, span or call id names.

    Prints its file, offset and line; of a trace, those of all its records. The id and DIR may change places. Exit code 1 where nothing has that id.
    """
    from otel_gym.tracing.find import find_id

    if os.path.isdir(wanted) and not os.path.exists(directory):
        wanted, directory = directory, wanted
    root = existing_directory(directory)
    wanted = wanted.strip()
    if not wanted:
        raise UsageProblem("the id is empty; give a trace id, a span id or a model_call_id")
    run = read_run(root)
    if run is None:
        raise UsageProblem(f"{root}: has no run.json, so trace ids are unknown; export it first")
    found = list(find_id(root, run, wanted))
    if as_json:
        print_json([_as_json(each, root) for each in found])
    for each in found if not as_json else ():
        place = printable(str(root / each.file_name))
        if each.record is None:
            click.echo(f"{place}  rollout {each.rollout_id}  trace {each.trace_id}")
        else:
            click.echo(
                f"{place}  byte {each.offset_bytes}  line {each.line_number}  call {printable(str(each.model_call_id), 80)}  span {each.span_id}"
            )
    if not found:
        if not as_json:
            click.echo(f"otel-gym: {printable(wanted, 80)}: nothing of that id in {root}", err=True)
        return 1
    return 0


def _as_json(found: Found, root: Path) -> dict[str, Any]:
    return {
        "rollout_id": found.rollout_id,
        "file": str(root / found.file_name),
        "offset_bytes": found.offset_bytes,
        "length_bytes": found.length_bytes,
        "line": found.line_number,
        "trace_id": found.trace_id,
        "span_id": found.span_id,
        "model_call_id": found.model_call_id,
        "record": found.record,
    }
