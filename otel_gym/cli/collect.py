"""`otel-gym collect`: every task's rollouts asked of an agent, durable and resumable."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from otel_gym.cli.options import DIRECTORY, FILE, Seconds, Url, config_option, json_option
from otel_gym.cli.output import console, print_json
from otel_gym.errors import UsageProblem
from otel_gym.reports.terminal import printable
from otel_gym.rollouts.collect import Collector
from otel_gym.rollouts.options import Collected, CollectOptions
from otel_gym.rollouts.progress import CollectProgress
from otel_gym.servers.file_limit import raise_file_limit
from otel_gym.settings import Settings, load_settings

INTERRUPTED: Final = 130
_LINES_A_KIND: Final = 20
"""Problems of one kind that are shown; the files hold all."""
_PLAIN_STEP: Final = 20
"""Progress lines of a run whose stderr is no terminal."""


@click.command()
@click.option(
    "--agent",
    type=Url("http://127.0.0.1:9001"),
    required=True,
    metavar="URL",
    help="URL of the agent server.",
)
@click.option(
    "--input",
    "tasks",
    type=FILE,
    required=True,
    metavar="FILE",
    help="Tasks, one JSON object a line.",
)
@click.option(
    "--output",
    type=FILE,
    required=True,
    metavar="FILE",
    help="Results, one a line, as they finish.",
)
@click.option(
    "--num-repeats", type=click.IntRange(1), default=1, show_default=True, help="Rollouts a task."
)
@click.option(
    "--concurrency", type=click.IntRange(1), default=16, show_default=True, help="Rollouts at once."
)
@click.option("--limit", type=click.IntRange(1), help="Only the first tasks of the input.")
@click.option("--resume", is_flag=True, help="Go on with the output: dispatch what is missing.")
@click.option("--overwrite", is_flag=True, help="Start anew over an output that exists.")
@click.option(
    "--max-attempts",
    type=click.IntRange(1),
    default=3,
    envvar="NEMO_GYM_MAX_ROLLOUT_ATTEMPTS",
    show_default=True,
    help="Failed attempts after which --resume leaves a rollout alone.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(0, min_open=True),
    metavar="SECONDS",
    help="Longest silence of the agent, in seconds.",
)
@config_option()
@click.option(
    "--capture-dir",
    type=DIRECTORY,
    metavar="DIR",
    help="The model server's capture directory, to attach from.",
)
@json_option
def command(
    agent: str,
    tasks: str,
    output: str,
    num_repeats: int,
    concurrency: int,
    limit: int | None,
    resume: bool,
    overwrite: bool,
    max_attempts: int,
    timeout_s: float | None,
    config: str | None,
    capture_dir: str | None,
    as_json: bool,
) -> int:
    """Play every task against an agent and keep each result.

    Sends each task to the agent's /run, appends each result to --output as it comes, with what was captured of its model calls.
    Ctrl-C lets what is in flight end; a second one stops. Failed attempts are in <output>_failures.jsonl.
    """
    logging.basicConfig(level=logging.WARNING, format="otel-gym: %(message)s")
    if resume and overwrite:
        raise UsageProblem("--resume and --overwrite exclude each other; give one of them")
    settings = _settings(config, capture_dir)
    raise_file_limit()
    options = CollectOptions(
        agent_url=agent,
        output=Path(output).absolute(),
        num_repeats=num_repeats,
        concurrency=concurrency,
        limit=limit,
        resume=resume,
        overwrite=overwrite,
        max_attempts=max_attempts,
        timeout_s=timeout_s,
    )
    with _display() as (on_progress, say):
        collector = Collector(
            settings,
            Path(tasks),
            options,
            on_progress=on_progress,
            on_problem=_Problems(say),
        )
        collected, interrupted = asyncio.run(_collect(collector, say))
    if collected is None:
        click.echo("otel-gym: stopped; go on with --resume", err=True)
        return INTERRUPTED
    if as_json:
        print_json({**asdict(collected), "whole": collected.whole})
    else:
        _report(collected)
    if interrupted:
        return INTERRUPTED
    return 0 if collected.whole else 1


def _settings(config: str | None, capture_dir: str | None) -> Settings:
    overrides: dict[str, Any] = {}
    if capture_dir is not None:
        overrides["observability_enabled"] = True
        overrides["model_call_capture_dir"] = str(Path(capture_dir).absolute())
    return load_settings(Path(config) if config else None, overrides=overrides)


async def _collect(
    collector: Collector, say: Callable[[str], None]
) -> tuple[Collected | None, bool]:
    """(how it stands, whether a signal ended it early); null where it was stopped at once."""
    task = asyncio.ensure_future(collector.run())
    signals = 0

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            say("stopping when what is in flight has ended; once more to stop at once")
            collector.drain()
        else:
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        return await task, signals > 0
    except asyncio.CancelledError:
        return None, True
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class _Problems:
    """Shows problems, a bounded number of each kind."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._kinds: Counter[str] = Counter()

    def __call__(self, problem: str) -> None:
        # The kind is what is left when ids and figures are taken out.
        kind = "".join(c for c in problem.partition(": ")[2][:60] if not c.isdigit())
        self._kinds[kind] += 1
        if self._kinds[kind] <= _LINES_A_KIND:
            self._say(printable(problem))
        if self._kinds[kind] == _LINES_A_KIND:
            self._say("more of these are not shown")


@contextlib.contextmanager
def _display() -> Iterator[tuple[Callable[[CollectProgress], None], Callable[[str], None]]]:
    """(progress, a line above it) on stderr: a bar on a terminal, now and then a line elsewhere."""
    if not sys.stderr.isatty():
        shown = -1

        def tell(moment: CollectProgress) -> None:
            nonlocal shown
            step = (moment.completed + moment.failed) * _PLAIN_STEP // max(moment.total, 1)
            if step != shown:
                shown = step
                click.echo(
                    f"{moment.completed + moment.failed}/{moment.total} {_text(moment)}", err=True
                )

        yield tell, lambda line: click.echo(f"otel-gym: {line}", err=True)
        return
    columns = (
        TextColumn("rollouts"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console(stderr=True)) as bars:
        task = bars.add_task("", total=None)

        def update(moment: CollectProgress) -> None:
            ended = moment.completed + moment.failed
            bars.update(task, completed=ended, total=moment.total, description=_text(moment))

        yield update, lambda line: bars.console.print(line, markup=False)


def _text(moment: CollectProgress) -> str:
    """Rate, failures and time left."""
    parts = [f"{moment.rate_per_s:.1f}/s"] if moment.rate_per_s is not None else []
    parts.append(f"{moment.failed} failed")
    parts.append(f"{moment.in_flight} in flight")
    if moment.draining:
        parts.append("stopping")
    elif moment.eta_s is not None:
        minutes, seconds = divmod(round(moment.eta_s), 60)
        parts.append(f"{minutes}:{seconds:02d} left")
    return ", ".join(parts)


def _report(collected: Collected) -> None:
    out = console()
    done = collected.done_before + collected.completed
    out.print(
        f"rollouts  {done} of {collected.planned} done, {collected.completed} by this run",
        markup=False,
    )
    if collected.failed or collected.exhausted or collected.left:
        out.print(
            f"missing   {collected.failed} failed, {collected.left} not played, "
            f"{collected.exhausted} given up before",
            markup=False,
        )
    if collected.input_problems:
        out.print(
            f"input     {collected.input_problems} rows with problems, named above", markup=False
        )
    out.print(f"results   {collected.output}", markup=False, soft_wrap=True)
    if collected.failed:
        out.print(f"failures  {collected.failures}", markup=False, soft_wrap=True)
    if collected.failed or collected.left:
        out.print("next      the same command with --resume", markup=False)
