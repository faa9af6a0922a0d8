"""`otel-gym sampling`: did the engine sample with what training was told?"""

from __future__ import annotations

from typing import Any, Final

import click
from rich.table import Table

from otel_gym.capture.store import CaptureStore
from otel_gym.cli.output import console, existing_directory, print_json
from otel_gym.errors import StoreError, UsageProblem
from otel_gym.reports.terminal import printable
from otel_gym.sampling.drift import DriftReport
from otel_gym.sampling.pairs import pairs
from otel_gym.sampling.parameters import SPELLINGS, nearest

SHOWN_DIFFERENCES: Final = 20
SHOWN_ROLLOUTS: Final = 50


@click.command()
@click.argument("directory")
@click.option(
    "--require",
    "required",
    metavar="NAME=VALUE,...",
    help="Exit with 1 when the engine got anything else in any call.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output on stdout.")
def command(directory: str, required: str | None, as_json: bool) -> int:
    """Report the sampling parameters of the calls in DIRECTORY: what servers pinned, what callers sent, what engines got."""
    store = CaptureStore(existing_directory(directory))
    report = DriftReport(_required(required))
    damaged = 0
    for rollout_id in sorted(store.rollouts()):
        damaged += _add(report, store, rollout_id)
    if as_json:
        print_json({"directory": str(store.root), **report.to_json(), "invalid_lines": damaged})
    else:
        _print(report, store)
        if damaged:
            click.echo(f"otel-gym: {damaged} lines are no records and were left out", err=True)
    return 1 if report.differences else 0


def _add(report: DriftReport, store: CaptureStore, rollout_id: str) -> int:
    """Add a rollout's records; the number of lines that are none."""
    invalid = 0
    try:
        for line in store.iter_lines(rollout_id):
            if line.record is None:
                invalid += 1
            else:
                report.add(rollout_id, line.record)
    except StoreError as error:
        raise UsageProblem(str(error)) from None
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
    for name in found:
        if name not in SPELLINGS and (near := nearest(name)) is not None:
            raise UsageProblem(
                f"--require {name}: is no known sampling parameter; did you mean {near!r}?"
            )
    return found


def _print(report: DriftReport, store: CaptureStore) -> None:
    out = console()
    value = report.to_json()
    if not report.calls:
        out.print(f"no model calls in {store.root}", markup=False)
        return
    for server in value["servers"]:
        out.print(
            f"server {printable(server['server'], 80)}: {server['calls']} calls", markup=False
        )
        for profile in server["profiles"]:
            out.print(
                f"  pinned     {_values(profile['pinned'])}  ({profile['calls']} calls)",
                markup=False,
            )
        for effective in server["effective"]:
            out.print(
                f"  effective  {_values(effective['values'])}  ({effective['calls']} calls)",
                markup=False,
            )
        out.print(f"  replaced   {_counts(server['overridden'])}", markup=False)
        out.print(f"  not sent   {_counts(server['without'])}", markup=False)
        out.print(_rollouts(server["rollouts"]))
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
    table = Table("rollout", "calls", "profiles", "effective", "replaced", "not sent")
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
