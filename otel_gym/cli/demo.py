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

from otel_gym.cli.output import console, print_json
from otel_gym.demo.run import DemoResult, Progress, run_demo
from otel_gym.errors import UsageProblem
from otel_gym.reports.summary import summarise
from otel_gym.reports.terminal import printable
from otel_gym.reports.waterfall import rollout_table, waterfall
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
    "--capture-dir", help="Where the files go; a new directory below ./captures by default."
)
@click.option("--otlp-endpoint", help="Base URL of an OTLP backend, such as http://127.0.0.1:4318.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable summary on stdout.")
def command(
    rollouts: int, turns: int, capture_dir: str | None, otlp_endpoint: str | None, as_json: bool
) -> int:
    """Play rollouts with real SDK clients against an embedded real model, through a capturing model server."""
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
    with _progress() as on_progress:
        result = asyncio.run(
            run_demo(settings, rollouts=rollouts, turns=turns, on_progress=on_progress)
        )
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
    out.print(rollout_table([summarise(one, records) for one, records in result.rollouts.items()]))
    for rollout_id, problem in result.failures.items():
        out.print(f"failed    {rollout_id}: {printable(problem, 200)}", markup=False, style="red")
    first = next(iter(result.rollouts))
    trace = result.to_json()["trace_ids"][first]
    out.print()
    out.print(
        waterfall(
            result.rollouts[first], f"rollout {first} (░ waiting for the first chunk, ~ streamed)"
        )
    )
    out.print(f"\ntrace     {trace}", markup=False, soft_wrap=True)
    out.print(
        f"next      {_program()} show {result.capture_dir} {first}", markup=False, soft_wrap=True
    )
    out.print(
        f"          {_program()} view {result.capture_dir}   (the same in a browser)",
        markup=False,
        soft_wrap=True,
    )


def _program() -> str:
    """How the person can call us again: by name where the shell finds it, else by the path that was used."""
    called = Path(sys.argv[0])
    if called.name != "otel-gym" or shutil.which("otel-gym") is not None:
        return "otel-gym"
    return os.path.relpath(called)
