"""`otel-gym history`: list and verify the histories of a database."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from otel_gym.cli.options import FILE, json_option
from otel_gym.cli.output import print_json, print_table
from otel_gym.errors import UsageProblem
from otel_gym.replay.errors import DamagedHistory, HistoryStoreError
from otel_gym.replay.store import HistoryStore
from otel_gym.replay.store_paths import Branch
from otel_gym.reports.terminal import plain_table, printable


@click.command()
@click.argument("path", metavar="PATH", type=FILE)
@click.argument("rollout", required=False)
@json_option
@click.pass_context
def command(context: click.Context, path: str, rollout: str | None, as_json: bool) -> None:
    """List and verify the histories of a history database.

    PATH is a file that HistoryStore wrote. Every entry and column is verified, with ROLLOUT those of that rollout. Exit code 1 means damage; the other histories are listed and verified all the same.
    """
    if not Path(path).exists():
        raise UsageProblem(f"{path}: no such file; name one that HistoryStore wrote")
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    try:
        with HistoryStore(path, read_only=True) as store:
            branches = store.branches(rollout)
            if rollout is not None and not branches:
                raise UsageProblem(f"{path}: no rollout {rollout!r}; leave it out to list all")
            rows = [_row(store, branch) for branch in branches]
            try:
                store.verify_file()
            except DamagedHistory as damage:
                problems.append(str(damage))
    except DamagedHistory as damage:
        problems.append(str(damage))
    except HistoryStoreError as error:
        raise UsageProblem(f"{error}; name a file that HistoryStore wrote") from None
    damaged = bool(problems) or any(row["damage"] for row in rows)
    if as_json:
        print_json({"path": path, "damaged": damaged, "damage": problems, "branches": rows})
    else:
        _print_table(rows, problems)
    context.exit(1 if damaged else 0)


def _row(store: HistoryStore, branch: Branch) -> dict[str, Any]:
    damage = None
    try:
        store.verify(branch)
    except DamagedHistory as error:
        damage = str(error)
    return {
        "rollout_id": branch.rollout_id,
        "attempt": branch.attempt,
        "branch": branch.name,
        "entries": branch.entries,
        "turns": branch.turns,
        "updated_at": branch.updated_at,
        "damage": damage,
    }


def _print_table(rows: list[dict[str, Any]], problems: list[str]) -> None:
    table = plain_table()
    for name in ("rollout", "attempt", "branch", "turns", "entries", "updated", "verified"):
        is_number = name in ("attempt", "turns", "entries")
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        updated = datetime.fromtimestamp(row["updated_at"], UTC)
        table.add_row(
            Text(printable(row["rollout_id"])),
            str(row["attempt"]),
            Text(printable(row["branch"])),
            str(row["turns"]),
            str(row["entries"]),
            updated.isoformat(timespec="seconds"),
            Text(printable(row["damage"] or "ok")),
        )
    print_table(table)
    for problem in problems:
        click.echo(problem, err=True)
