"""`otel-gym show`: the rollouts of a directory, one rollout's calls, or one call in full."""

from __future__ import annotations

import click
import orjson

from otel_gym.capture.record import ModelCallRecord, build_model_call_record
from otel_gym.capture.store import CaptureStore
from otel_gym.cli.output import console, existing_directory, print_json
from otel_gym.correlation.rollout_id import why_invalid
from otel_gym.errors import StoreError, UsageProblem
from otel_gym.reports.summary import summarise
from otel_gym.reports.terminal import printable
from otel_gym.reports.waterfall import rollout_table, waterfall


@click.command()
@click.argument("directory")
@click.argument("rollout_id", required=False)
@click.option(
    "--call", "model_call_id", help="Show this call in full: its record as it stands in the file."
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output on stdout.")
def command(
    directory: str, rollout_id: str | None, model_call_id: str | None, as_json: bool
) -> None:
    """Show the rollouts of DIRECTORY, or the calls of ROLLOUT_ID as a waterfall."""
    store = CaptureStore(existing_directory(directory))
    if model_call_id is not None:
        _show_call(store, rollout_id, model_call_id)
    elif rollout_id is not None:
        _show_rollout(store, rollout_id, as_json)
    else:
        _show_directory(store, as_json)


def _show_directory(store: CaptureStore, as_json: bool) -> None:
    summaries = []
    damaged = 0
    for rollout_id in sorted(store.rollouts()):
        records, invalid = _records(store, rollout_id)
        damaged += invalid
        summaries.append(summarise(rollout_id, records))
    if as_json:
        print_json(
            {
                "directory": str(store.root),
                "rollouts": [one.to_json() for one in summaries],
                "invalid_lines": damaged,
            }
        )
        return
    if not summaries:
        console().print(f"no captures in {store.root}", markup=False)
        return
    console().print(rollout_table(summaries))
    _warn(damaged)


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
    console().print(
        waterfall(
            records,
            f"rollout {rollout_id}: {len(records)} calls (░ waiting for the first chunk, ~ streamed)",
        )
    )
    _warn(invalid)


def _show_call(store: CaptureStore, rollout_id: str | None, model_call_id: str) -> None:
    places = [_existing(store, rollout_id)] if rollout_id is not None else sorted(store.rollouts())
    for place in places:
        for _offset, _length, raw in store.iter_records(place):
            if raw.get("model_call_id") == model_call_id:
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
            f"{rollout_id}: no captures of this rollout in {store.root}; list them with: otel-gym show {store.root}"
        )
    return rollout_id


def _records(store: CaptureStore, rollout_id: str) -> tuple[list[ModelCallRecord], int]:
    try:
        lines, invalid = store.read_available(rollout_id)
    except (StoreError, OSError) as error:
        raise UsageProblem(f"{store.path_for(rollout_id)}: cannot be read: {error}") from None
    return [build_model_call_record(raw, index) for index, raw in lines], invalid


def _warn(invalid: int) -> None:
    if invalid:
        click.echo(f"{invalid} damaged lines were skipped; see: otel-gym doctor", err=True)
