"""`otel-gym export-parquet DIR OUT`: captures as a Parquet file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from otel_gym.capture.parquet import ExportOutcome, export_parquet
from otel_gym.capture.store import CaptureStore
from otel_gym.cli.options import FILE, directory_argument, json_option
from otel_gym.cli.output import console, counted, existing_directory, print_json
from otel_gym.errors import UsageProblem


@click.command()
@directory_argument
@click.argument("out", metavar="OUT", type=FILE)
@json_option
def command(directory: str, out: str, as_json: bool) -> None:
    """Write every record of a capture directory to Parquet.

    Each record is one row of the file OUT.

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
    calls, rollouts = counted(outcome.calls, "call"), counted(outcome.rollouts, "rollout")
    screen.print(f"{calls} of {rollouts} in {out}.", markup=False, soft_wrap=True)
    if outcome.damaged_lines:
        lines = counted(outcome.damaged_lines, "damaged line")
        screen.print(f"left out: {lines}; see otel-gym doctor")
    if outcome.invalid_records:
        records = counted(outcome.invalid_records, "record")
        screen.print(f"with fields of wrong types: {records}")
    for rollout_id, reason in outcome.unreadable.items():
        screen.print(f"{rollout_id}: {reason}", markup=False, soft_wrap=True)
