"""`otel-gym find`: from an id in a trace back to the record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_gym.cli.output import existing_directory, print_json
from otel_gym.correlation.run import read_run
from otel_gym.errors import UsageProblem

if TYPE_CHECKING:
    from otel_gym.tracing.find import Found


@click.command()
@click.argument("wanted", metavar="TRACE_OR_SPAN_OR_CALL_ID")
@click.argument("directory", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print the whole records as JSON.")
def command(wanted: str, directory: str, as_json: bool) -> int:
    """Print the file, offset and line of the record that an id names; of a trace, all its records."""
    from otel_gym.tracing.find import find_id

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
        place = str(root / each.file_name)
        if each.record is None:
            click.echo(f"{place}  rollout {each.rollout_id}  trace {each.trace_id}")
        else:
            click.echo(
                f"{place}  byte {each.offset_bytes}  line {each.line_number}  call {each.model_call_id}  span {each.span_id}"
            )
    if not found:
        if not as_json:
            click.echo(f"otel-gym: {wanted}: nothing of that id in {root}", err=True)
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
