"""`otel-gym sampling`: did the engine sample with what training was told?"""

from __future__ import annotations

from typing import Any, Final

import click
from rich.table import Table

from otel_gym.capture.store import CaptureStore
from otel_gym.cli.options import directory_argument, json_option
from otel_gym.cli.output import (
    console,
    counted,
    existing_directory,
    nothing_in,
    print_json,
    print_table,
)
from otel_gym.errors import StoreError, UsageProblem
from otel_gym.reports.terminal import plain_table, printable
from otel_gym.sampling.drift import DriftReport
from otel_gym.sampling.pairs import pairs
from otel_gym.sampling.parameters import SPELLINGS, nearest

SHOWN_DIFFERENCES: Final = 20
SHOWN_ROLLOUTS: Final = 50


@click.command()
@directory_argument
@click.option(
    "--require",
    "required",
    metavar="NAME=VALUE,...",
    help="Exit with 1 when the engine got anything else in any call.",
)
@json_option
def command(directory: str, required: str | None, as_json: bool) -> int:
    """Report sampling parameters: pinned, sent, effective.

    Of all calls in the capture directory DIR, by server and rollout. Exit code 1 where --require is not met, or cannot be told because a rollout or a line is damaged.
    """
    store = CaptureStore(existing_directory(directory))
    report = DriftReport(_required(required))
    damaged = 0
    unreadable: dict[str, str] = {}
    for rollout_id in sorted(store.rollouts()):
        try:
            damaged += _add(report, store, rollout_id)
        except (StoreError, OSError) as error:
            unreadable[rollout_id] = str(error)
    if as_json:
        more = {"invalid_lines": damaged, "unreadable": unreadable}
        print_json({"directory": str(store.root), **report.to_json(), **more})
    else:
        _print(report, store)
        if damaged:
            lines = counted(damaged, "damaged line")
            click.echo(f"otel-gym: {lines} skipped; see: otel-gym doctor", err=True)
    for reason in unreadable.values():
        click.echo(f"otel-gym: {printable(reason)}", err=True)
    unproven = bool(required) and damaged > 0
    return 1 if report.differences or unreadable or unproven else 0


def _add(report: DriftReport, store: CaptureStore, rollout_id: str) -> int:
    """Add a rollout's records; the number of lines that are none. Raises `StoreError` or `OSError`."""
    invalid = 0
    for line in store.iter_lines(rollout_id):
        if line.record is None:
            invalid += 1
        else:
            report.add(rollout_id, line.record)
    return invalid


def _required(text: str | None) -> dict[str, Any] | None:
    """`temperature=1.0,top_p=1.0`; a comma inside a JSON value does not separate."""
    if text is None:
        return None
    parts: list[str] = []
    for part in text.split(","):
        name, sign, _ = part.partition("=")
        if parts and not (sign and name.strip().isidentifier()):
            parts[-1] += "," + part
        else:
            parts.append(part)
    found = pairs("--require", parts)
    for name, value in found.items():
        parameter = SPELLINGS.get(name)
        if parameter is None and (near := nearest(name)) is not None:
            raise UsageProblem(
                f"--require {name}: is no known sampling parameter; did you mean {near!r}?"
            )
        if parameter is not None and (problem := parameter.problem(value)) is not None:
            raise UsageProblem(f"--require {name}: {value!r}: {problem}")
    return found


def _print(report: DriftReport, store: CaptureStore) -> None:
    out = console()
    value = report.to_json()
    if not report.calls:
        click.echo(nothing_in(store.root))
        return
    for server in value["servers"]:
        out.print(
            f"server {printable(server['server'], 80)}: {counted(server['calls'], 'call')}",
            markup=False,
        )
        for profile in server["profiles"]:
            out.print(
                f"  pinned     {_values(profile['pinned'])}  ({counted(profile['calls'], 'call')})",
                markup=False,
            )
        for effective in server["effective"]:
            out.print(
                f"  effective  {_values(effective['values'])}  ({counted(effective['calls'], 'call')})",
                markup=False,
            )
        out.print(f"  replaced   {_counts(server['overridden'])}", markup=False)
        out.print(f"  not sent   {_counts(server['without'])}", markup=False)
        print_table(_rollouts(server["rollouts"]))
    if report.mixed:
        out.print(
            f"{len(report.mixed)} rollouts with more than one effective profile: {', '.join(report.mixed[:SHOWN_ROLLOUTS])}",
            markup=False,
        )
    if report.unread:
        out.print(
            f"{report.unread} calls never reached an engine or have no readable request",
            markup=False,
        )
    for one in report.differences[:SHOWN_DIFFERENCES]:
        got = "nothing" if one.effective is None else printable(repr(one.effective), 80)
        out.print(
            f"rollout {one.rollout_id} call {printable(one.model_call_id, 40)}: {one.parameter} must be {one.required!r}, the engine got {got}",
            markup=False,
        )
    if len(report.differences) > SHOWN_DIFFERENCES:
        out.print(
            f"... and {len(report.differences) - SHOWN_DIFFERENCES} more; see --json", markup=False
        )
    elif report.required and not report.differences:
        out.print(f"every call got {_values(report.required)}", markup=False)


def _rollouts(rollouts: list[dict[str, Any]]) -> Table:
    table = plain_table()
    for name in ("rollout", "calls", "profiles", "effective", "replaced", "not sent"):
        is_number = name in ("calls", "profiles", "effective")
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for one in rollouts[:SHOWN_ROLLOUTS]:
        table.add_row(
            one["rollout_id"],
            str(one["calls"]),
            str(len(one["profiles"])),
            str(len(one["effective"])),
            _counts(one["overridden"]),
            _counts(one["without"]),
        )
    if len(rollouts) > SHOWN_ROLLOUTS:
        table.caption = f"{len(rollouts) - SHOWN_ROLLOUTS} more rollouts; see --json"
    return table


def _values(values: dict[str, Any]) -> str:
    return (
        ", ".join(
            f"{printable(name, 60)}={printable(repr(value), 60)}" for name, value in values.items()
        )
        or "nothing"
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{printable(name, 60)} {number}" for name, number in counts.items()) or "-"
