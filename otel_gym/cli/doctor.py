"""`otel-gym doctor DIR`: whether every call of a capture directory is accounted for."""

from __future__ import annotations

from pathlib import Path

import click

from otel_gym.capture.ledger import Ledger, RolloutLedger, read_ledger
from otel_gym.capture.store import CaptureStore
from otel_gym.cli.options import directory_argument, json_option
from otel_gym.cli.output import console, counted, existing_directory, nothing_in, print_json
from otel_gym.reports.terminal import plain_table

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
_NOTHING = "No model call was begun here: capture was off, or no agent used this model server."


@click.command()
@directory_argument
@json_option
@click.option("--all", "show_all", is_flag=True, help="List rollouts that are whole, too.")
def command(directory: str, as_json: bool, show_all: bool) -> None:
    """Account for every model call of a capture directory.

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
    totals = ledger.totals()
    rollouts = counted(len(ledger.rollouts), "rollout")
    what = f"{path}: {rollouts}" if ledger.rollouts else nothing_in(path)
    screen.print(what, markup=False, soft_wrap=True)
    table = plain_table()
    table.add_column("rollout", overflow="fold")
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("notes")
    for rollout in shown:
        table.add_row(*_cells(rollout))
    noted = [f"{totals[name]} {name.replace('_', ' ')}" for name in _NOTED if totals.get(name)]
    if totals.get("incomplete_markers"):
        noted.insert(0, f"{totals['incomplete_markers']} incomplete")
    sums = {name: str(totals.get(_field(name), 0)) for name in _COLUMNS}
    if all(rollout.exported is None for rollout in ledger.rollouts):
        sums["exported"] = "-"
    table.add_row("all", *sums.values(), ", ".join(noted))
    screen.print(table)
    for sentence in _sentences(ledger):
        screen.print(f"- {sentence}", soft_wrap=True, markup=False)
    whole = "Whole: every call is accounted for." if totals.get("started") else _NOTHING
    screen.print(whole if ledger.whole else "Evidence is missing; see above.", soft_wrap=True)


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
        if rollout.uncaptured:
            sentences.append(f"{rollout.rollout_id}: was played, and no model call of it is known.")
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
