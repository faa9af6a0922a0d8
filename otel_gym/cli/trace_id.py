"""`otel-gym trace-id`: from a rollout to its trace."""

from __future__ import annotations

import click

from otel_gym.cli.options import Url, directory_argument, json_option
from otel_gym.cli.output import existing_directory, print_json
from otel_gym.correlation.rollout_id import checked
from otel_gym.correlation.run import read_run
from otel_gym.correlation.trace_ids import root_span_id, trace_id
from otel_gym.errors import InvalidRolloutId, UsageProblem


@click.command()
@directory_argument
@click.argument("rollout_id", metavar="ROLLOUT_ID")
@click.option(
    "--ui",
    type=Url("http://localhost:16686"),
    metavar="URL",
    help="Jaeger's address; prints the link to the trace, too.",
)
@json_option
def command(directory: str, rollout_id: str, ui: str | None, as_json: bool) -> int:
    """Print the trace id and root span id of a rollout.

    Both are computed from the run and the rollout's id, whether anything was exported or not.
    """
    root = existing_directory(directory)
    try:
        checked(rollout_id)
    except InvalidRolloutId as error:
        raise UsageProblem(f"{error}; give the id as the file names have it") from None
    run = read_run(root)
    if run is None:
        raise UsageProblem(
            f"{root}: has no run.json, so trace ids are unknown; `otel-gym export` makes one"
        )
    ids = {
        "run_id": run.run_id,
        "rollout_id": rollout_id,
        "trace_id": trace_id(run.run_id, rollout_id),
        "root_span_id": root_span_id(run.run_id, rollout_id),
    }
    link = None if ui is None else f"{ui.rstrip('/')}/trace/{ids['trace_id']}"
    if as_json:
        print_json(ids if link is None else {**ids, "url": link})
        return 0
    click.echo(f"trace     {ids['trace_id']}")
    click.echo(f"root span {ids['root_span_id']}")
    if link is not None:
        click.echo(f"link      {link}")
    return 0
