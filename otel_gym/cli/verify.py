"""`otel-gym verify`: whether a backend has every record, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from otel_gym.cli.options import (
    Url,
    config_option,
    directory_argument,
    json_option,
    rollouts_option,
)
from otel_gym.cli.output import console, existing_directory, print_json
from otel_gym.cli.selection import chosen_rollouts
from otel_gym.correlation.run import read_run
from otel_gym.errors import ExportError, UsageProblem
from otel_gym.settings import load_settings


@click.command()
@directory_argument
@click.option(
    "--jaeger",
    type=Url("http://127.0.0.1:16686"),
    metavar="URL",
    required=True,
    help="Jaeger's query address.",
)
@click.option(
    "--api",
    type=click.Choice(["v1", "v3"]),
    help="Its API to use; without it, v3 where the backend has it.",
)
@rollouts_option
@config_option("the one that the export was made with")
@json_option
def command(
    directory: str,
    jaeger: str,
    api: str | None,
    rollouts: tuple[str, ...],
    config: str | None,
    as_json: bool,
) -> int:
    """Compare a capture directory with Jaeger, span by span.

    Prints what is missing, extra or different; exit code 1 then. Exit code 2 where there is no answer, as from a Jaeger that cannot be reached.
    """
    from rich.progress import Progress

    from otel_gym.tracing.backfill import Selection
    from otel_gym.tracing.jaeger import JaegerReader
    from otel_gym.tracing.options import span_options
    from otel_gym.tracing.verify import verify_directory

    root = existing_directory(directory)
    run = read_run(root)
    if run is None:
        raise UsageProblem(f"{root}: has no run.json, so it was never exported; nothing to compare")
    settings = load_settings(Path(config) if config else None)
    selection = Selection(frozenset(rollouts) if rollouts else None)
    total = len(chosen_rollouts(root, selection))
    with (
        _no_answer(),
        JaegerReader(jaeger, api=api) as reader,
        Progress(console=console(stderr=True), disable=not sys.stderr.isatty()) as bar,
    ):
        task = bar.add_task("comparing", total=total)
        result = verify_directory(
            root,
            run,
            span_options(settings),
            reader,
            selection=selection,
            on_rollout=lambda _: bar.advance(task),
        )
    counts = {
        kind: sum(each.kind == kind for each in result.findings)
        for kind in ("missing", "extra", "different")
    }
    if as_json:
        print_json(
            {
                "rollouts": result.rollouts,
                "spans": result.spans,
                **counts,
                "cleared": len(result.cleared),
                "findings": [asdict(each) for each in [*result.findings, *result.cleared]],
            }
        )
    else:
        for each in result.findings:
            click.echo(
                f"{each.kind:<9} {each.rollout_id}  span {each.span_id}  {each.name}  {each.where}".rstrip()
            )
            for detail in each.details:
                click.echo(f"          {detail}")
        click.echo(
            f"{result.spans} spans of {result.rollouts} rollouts: "
            + ", ".join(f"{number} {kind}" for kind, number in counts.items())
            + (f"; {len(result.cleared)} of cleared attempts" if result.cleared else "")
        )
    return 1 if result.findings else 0


@contextmanager
def _no_answer() -> Iterator[None]:
    """A backend that cannot be asked is no difference that was found."""
    try:
        yield
    except ExportError as error:
        raise UsageProblem(str(error)) from None
