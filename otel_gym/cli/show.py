"""`otel-gym show`: the rollouts of a directory, one rollout's calls, or one call in full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import orjson
from pydantic import ValidationError

from otel_gym.capture.record import ModelCallRecord, build_model_call_record
from otel_gym.capture.store import CaptureStore
from otel_gym.cli.options import directory_argument, json_option
from otel_gym.cli.output import (
    counted,
    existing_directory,
    nothing_in,
    print_json,
    print_table,
    print_waterfall,
    shell_word,
)
from otel_gym.correlation.rollout_id import why_invalid
from otel_gym.errors import StoreError, UsageProblem
from otel_gym.reports.summary import summarise
from otel_gym.reports.terminal import printable
from otel_gym.reports.waterfall import rollout_table


@click.command()
@directory_argument
@click.argument("rollout_id", required=False)
@click.option(
    "--call",
    "model_call_id",
    metavar="ID",
    help="Show this call in full: its record as it stands in the file.",
)
@json_option
def command(
    directory: str, rollout_id: str | None, model_call_id: str | None, as_json: bool
) -> int:
    """Show a run, a rollout's waterfall, or a call in full.

    Without ROLLOUT_ID it lists the rollouts of the capture directory DIR. Exit code 1 where a rollout could not be read.
    """
    store = CaptureStore(existing_directory(directory))
    if model_call_id is not None:
        _show_call(store, rollout_id, model_call_id, as_json)
    elif rollout_id is not None:
        _show_rollout(store, rollout_id, as_json)
    else:
        return _show_directory(store, as_json)
    return 0


def _show_directory(store: CaptureStore, as_json: bool) -> int:
    summaries = []
    unreadable: dict[str, str] = {}
    damaged = 0
    for rollout_id in sorted(store.rollouts()):
        try:
            records, invalid = _records(store, rollout_id)
        except UsageProblem as problem:
            unreadable[rollout_id] = str(problem)
            continue
        damaged += invalid
        summaries.append(summarise(rollout_id, records))
    if as_json:
        print_json(
            {
                "directory": str(store.root),
                "rollouts": [one.to_json() for one in summaries],
                "invalid_lines": damaged,
                "unreadable": unreadable,
            }
        )
    elif summaries:
        print_table(rollout_table(summaries))
    elif not unreadable:
        click.echo(nothing_in(store.root))
    for reason in unreadable.values():
        click.echo(f"otel-gym: {printable(reason)}", err=True)
    if not as_json:
        _warn(damaged, store)
    return 1 if unreadable else 0


def _show_rollout(store: CaptureStore, rollout_id: str, as_json: bool) -> None:
    records, invalid = _records(store, _existing(store, rollout_id))
    if as_json:
        print_json(
            {
                "rollout_id": rollout_id,
                "calls": [
                    one.model_dump(exclude={"request", "response", "request_raw", "response_raw"})
                    for one in records
                ],
                "invalid_lines": invalid,
            }
        )
        return
    print_waterfall(records, f"rollout {rollout_id}: {counted(len(records), 'call')}")
    _warn(invalid, store)


def _show_call(
    store: CaptureStore, rollout_id: str | None, model_call_id: str, as_json: bool
) -> None:
    places = [_existing(store, rollout_id)] if rollout_id is not None else sorted(store.rollouts())
    for place in places:
        for raw in _raw_records(store, place):
            if raw.get("model_call_id") == model_call_id:
                if as_json:
                    print_json(raw)
                    return
                # Escaped to ASCII by the second step: what a model wrote must not steer a terminal.
                text = orjson.dumps(raw, option=orjson.OPT_INDENT_2).decode()
                click.echo("\n".join(printable(line) for line in text.split("\n")))
                return
    where = f"rollout {rollout_id}" if rollout_id is not None else str(store.root)
    raise UsageProblem(f"{printable(model_call_id, 80)}: no such model call in {where}")


def _existing(store: CaptureStore, rollout_id: str) -> str:
    reason = why_invalid(rollout_id)
    if reason is not None:
        raise UsageProblem(f"{printable(rollout_id, 80)!r}: is no rollout id: it {reason}")
    if rollout_id not in set(store.rollouts()):
        raise UsageProblem(
            f"{rollout_id}: no captures of this rollout in {store.root}; list them with: otel-gym show {shell_word(store.root)}"
        )
    return rollout_id


def _raw_records(store: CaptureStore, rollout_id: str) -> Iterator[dict[str, Any]]:
    """The lines of a rollout that are records. Raises `UsageProblem`."""
    try:
        for _offset, _length, raw in store.iter_records(rollout_id):
            yield raw
    except (StoreError, OSError) as error:
        raise _unreadable(store, rollout_id, error) from None


def _records(store: CaptureStore, rollout_id: str) -> tuple[list[ModelCallRecord], int]:
    """(the derived records, number of lines that are none). Raises `UsageProblem`."""
    try:
        lines, invalid = store.read_available(rollout_id)
    except (StoreError, OSError) as error:
        raise _unreadable(store, rollout_id, error) from None
    records = []
    for index, raw in lines:
        try:
            records.append(build_model_call_record(raw, index))
        except ValidationError:  # Another producer's line with a field of a wrong type.
            invalid += 1
    return records, invalid


def _unreadable(store: CaptureStore, rollout_id: str, error: StoreError | OSError) -> UsageProblem:
    if isinstance(error, StoreError):
        return UsageProblem(str(error))
    return UsageProblem(f"{store.path_for(rollout_id)}: cannot be read: {error.strerror}")


def _warn(invalid: int, store: CaptureStore) -> None:
    if invalid:
        left_out = "line was" if invalid == 1 else "lines were"
        click.echo(
            f"otel-gym: {invalid} damaged {left_out} skipped; see: otel-gym doctor {shell_word(store.root)}",
            err=True,
        )
