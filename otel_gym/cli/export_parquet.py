"""`otel-gym export-parquet DIR OUT`: captures as a Parquet file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from otel_gym.capture.parquet import ExportOutcome, export_parquet
from otel_gym.capture.store import CaptureStore
from otel_gym.cli.output import console, existing_directory, print_json
from otel_gym.errors import UsageProblem


@click.command()
@click.argument("directory", metavar="DIR")
@click.argument("out", metavar="OUT")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(directory: str, out: str, as_json: bool) -> None:
    """Write every record of the capture directory DIR as one row of the Parquet file OUT.

    Exit code 1 where a rollout could not be read to its end; the rows of the others are there.
    """
    store = CaptureStore(existing_directory(directory))
    target = Path(out)
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise UsageProblem(f"{out}: name a file in an existing directory")
    outcome = export_parquet(store, target)
    if as_json:
        print_json({**asdict(outcome), "out": out})
    else:
        _show(outcome, out)
    if outcome.unreadable:
        raise click.exceptions.Exit(1)


def _show(outcome: ExportOutcome, out: str) -> None:
    screen = console()
    screen.print(f"{outcome.calls} calls of {outcome.rollouts} rollouts in {out}.", soft_wrap=True)
    if outcome.damaged_lines:
        screen.print(f"{outcome.damaged_lines} damaged lines have no row; see otel-gym doctor.")
    if outcome.invalid_records:
        screen.print(f"{outcome.invalid_records} records have fields of wrong types.")
    for rollout_id, reason in outcome.unreadable.items():
        screen.print(f"{rollout_id}: {reason}", markup=False, soft_wrap=True)
