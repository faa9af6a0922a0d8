"""`otel-gym doctor DIR`: whether every call of a capture directory is accounted for."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from otel_gym.capture.ledger import Ledger, RolloutLedger, read_ledger
from otel_gym.capture.store import CaptureStore
from otel_gym.cli.output import console, existing_directory, print_json

_COLUMNS = ("started", "recorded", "exported", "stale", "torn", "in flight", "died", "lost")
_NOTED = (
    "duplicates",
    "oversized",
    "redacted",
    "without_usage",
    "clock_anomalies",
    "cleared",
    "unclaimed",
)


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print the whole ledger as JSON.")
@click.option("--all", "show_all", is_flag=True, help="List rollouts that are whole, too.")
def command(directory: str, as_json: bool, show_all: bool) -> None:
    """Account for every call of the capture directory DIR.

    Exit code 0 where nothing is missing, 1 where evidence is: calls of dead producers, lost or torn records, incomplete markers, calls without a rollout
    prefix or with an invalid id.
    """
    path = existing_directory(directory)
    ledger = read_ledger(CaptureStore(path))
    if as_json:
        print_json(ledger.as_mapping())
    else:
        _show(ledger, path, show_all)
    if not ledger.whole:
        raise click.exceptions.Exit(1)


def _show(ledger: Ledger, path: Path, show_all: bool) -> None:
    screen = console()
    shown = [rollout for rollout in ledger.rollouts if show_all or not rollout.whole]
    screen.print(f"{path}: {len(ledger.rollouts)} rollouts", markup=False, soft_wrap=True)
    table = Table()
    table.add_column("rollout", overflow="fold")
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    table.add_column("notes")
    for rollout in shown:
        table.add_row(*_cells(rollout))
    table.add_section()
    totals = ledger.totals()
    noted = [f"{totals[name]} {name.replace('_', ' ')}" for name in _NOTED if totals.get(name)]
    if totals.get("incomplete_markers"):
        noted.insert(0, f"{totals['incomplete_markers']} incomplete")
    table.add_row("all", *(str(totals.get(_field(name), 0)) for name in _COLUMNS), ", ".join(noted))
    screen.print(table)
    for sentence in _sentences(ledger):
        screen.print(f"- {sentence}", soft_wrap=True, markup=False)
    screen.print(
        "Whole: every call is accounted for." if ledger.whole else "Evidence is missing; see above."
    )


def _cells(rollout: RolloutLedger) -> list[str]:
    values = [getattr(rollout, _field(name)) for name in _COLUMNS]
    notes = ["incomplete"] if rollout.incomplete_marker else []
    notes += [
        f"{getattr(rollout, name)} {name.replace('_', ' ')}"
        for name in _NOTED
        if getattr(rollout, name)
    ]
    return [
        rollout.rollout_id,
        *("-" if value is None else str(value) for value in values),
        ", ".join(notes),
    ]


def _field(column: str) -> str:
    return {"in flight": "pending_live", "died": "pending_dead"}.get(column, column)


def _sentences(ledger: Ledger) -> list[str]:
    sentences = []
    if ledger.unprefixed:
        sentences.append(
            f"{ledger.unprefixed} model calls came without a rollout prefix and have no record."
        )
    for rollout_id, count in list(ledger.invalid_ids.items())[:20]:
        sentences.append(f"{count} calls named {rollout_id!r}, which is no rollout id.")
    for rollout in ledger.rollouts:
        if rollout.torn_at_bytes:
            places = ", ".join(map(str, rollout.torn_at_bytes))
            sentences.append(f"{rollout.rollout_id}: lines that are no record at bytes {places}.")
        if rollout.unreadable:
            sentences.append(f"{rollout.rollout_id}: {rollout.unreadable}")
    if ledger.begun_unaccounted:
        sentences.append(
            f"{ledger.begun_unaccounted} calls were begun and no file accounts for them: records were removed from outside."
        )
    if ledger.lost_unnamed:
        sentences.append(f"{ledger.lost_unnamed} more records were given up.")
    for name, reason in ledger.unusable.items():
        sentences.append(f"{name}: {reason}; what it said of its producer's calls is lost.")
    if ledger.producers_dead:
        sentences.append(f"{ledger.producers_dead} producers ended without closing.")
    if ledger.invalid_files:
        sentences.append(f"Files that nothing here reads: {', '.join(ledger.invalid_files[:10])}.")
    return sentences
