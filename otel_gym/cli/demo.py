"""`otel-gym demo`: a real model's rollouts become files and, where an endpoint is given, traces."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from otel_gym.cli.options import DIRECTORY, OtlpUrl, json_option
from otel_gym.cli.output import (
    console,
    counted,
    print_json,
    print_table,
    print_waterfall,
    shell_word,
)
from otel_gym.demo.run import DemoResult, Progress, run_demo
from otel_gym.errors import UsageProblem
from otel_gym.reports.summary import summarise
from otel_gym.reports.terminal import printable
from otel_gym.reports.waterfall import rollout_table
from otel_gym.settings import load_settings


@click.command()
@click.option(
    "--rollouts",
    type=click.IntRange(1, 1000),
    default=6,
    show_default=True,
    help="Rollouts, played at once.",
)
@click.option(
    "--turns",
    type=click.IntRange(1, 50),
    default=3,
    show_default=True,
    help="Model calls of each rollout.",
)
@click.option(
    "--capture-dir",
    type=DIRECTORY,
    metavar="DIR",
    help="Where the files go; a new directory below ./captures by default.",
)
@click.option(
    "--otlp-endpoint",
    type=OtlpUrl(),
    metavar="URL",
    help="OTLP backend that gets a span per record.",
)
@json_option
def command(
    rollouts: int, turns: int, capture_dir: str | None, otlp_endpoint: str | None, as_json: bool
) -> int:
    """Capture a small real model's rollouts, start to end.

    Real SDK clients play them against an embedded model, through a capturing model server. Exit code 1 where a call failed or has no record.
    """
    directory = _directory(capture_dir)
    bridge = {"otlp_endpoint": otlp_endpoint} if otlp_endpoint else {}
    settings = load_settings(
        overrides={
            "observability_enabled": True,
            "model_call_capture_dir": str(directory),
            "otel_gym": bridge,
        }
    )
    if otlp_endpoint:
        settings = settings.model_copy(update={"otlp_endpoint": otlp_endpoint})
    try:
        with _progress() as on_progress:
            result = asyncio.run(
                run_demo(settings, rollouts=rollouts, turns=turns, on_progress=on_progress)
            )
    except KeyboardInterrupt:
        click.echo(f"what was captured until now is in {directory}", err=True)
        raise
    if as_json:
        print_json(result.to_json())
    else:
        _report(result, exporting=settings.otlp_endpoint is not None)
    complete = (
        result.errors == 0
        and sum(map(len, result.rollouts.values())) == result.calls == rollouts * turns
    )
    return 0 if complete else 1


def _directory(given: str | None) -> Path:
    """The capture directory, made here so that a wrong one is told before a model is loaded. Raises `UsageProblem`."""
    name = given or f"captures/demo-{time.strftime('%Y%m%d-%H%M%S')}"
    directory = Path(name).absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblem(
            f"{name}: cannot be made: {error.strerror}; choose another with --capture-dir"
        ) from None
    if any(directory.glob("*.capture.jsonl")):
        raise UsageProblem(
            f"{name}: already holds captures of a run; choose a new directory with --capture-dir"
        )
    return directory


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """A progress display on stderr: a bar on a terminal, a line a stage elsewhere."""
    if not sys.stderr.isatty():
        stages: set[str] = set()

        def say(progress: Progress) -> None:
            if progress.stage not in stages:
                stages.add(progress.stage)
                click.echo(f"{progress.stage} ...", err=True)

        yield say
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console(stderr=True), transient=True) as bars:
        task = bars.add_task("starting", total=None)
        yield lambda progress: bars.update(
            task, description=progress.stage, completed=progress.done, total=progress.total or None
        )


def _report(result: DemoResult, *, exporting: bool) -> None:
    out = console()
    out.print(f"files     {result.capture_dir}", markup=False, soft_wrap=True)
    exported = f", {result.spans_exported} spans exported" if exporting else ""
    out.print(
        f"calls     {result.calls} answered, {sum(map(len, result.rollouts.values()))} recorded{exported}\n"
    )
    print_table(
        rollout_table([summarise(one, records) for one, records in result.rollouts.items()])
    )
    for rollout_id, problem in result.failures.items():
        out.print(f"failed    {rollout_id}: {printable(problem, 200)}", markup=False, style="red")
    first = next(iter(result.rollouts))
    trace = result.to_json()["trace_ids"][first]
    out.print()
    calls = result.rollouts[first]
    print_waterfall(calls, f"rollout {first}: {counted(len(calls), 'call')}")
    out.print()
    directory = shell_word(result.capture_dir)
    for label, text in (
        ("trace", trace),
        ("next", f"{_program()} show {directory} {first}"),
        ("browser", f"{_program()} view {directory}"),
    ):
        out.print(f"{label:<9} {text}", markup=False, soft_wrap=True)


def _program() -> str:
    """How the person can call us again: by name where the shell finds it, else by the path that was used."""
    called = Path(sys.argv[0])
    if called.name != "otel-gym" or shutil.which("otel-gym") is not None:
        return "otel-gym"
    return shell_word(os.path.relpath(called))
