"""`otel-gym export`: the spans of a directory's files, to a backend or a file, once or following."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from otel_gym.cli.options import (
    FILE,
    OtlpUrl,
    config_option,
    directory_argument,
    json_option,
    rollouts_option,
    run_id_option,
)
from otel_gym.cli.output import counted, existing_directory, print_json
from otel_gym.cli.selection import chosen_rollouts
from otel_gym.correlation.run import Run, default_resource, open_run, read_run
from otel_gym.errors import ExportError, StoreError, UsageProblem
from otel_gym.reports.terminal import printable
from otel_gym.settings import Settings, load_settings

if TYPE_CHECKING:
    from otel_gym.tracing.backfill import Selection, Summary
    from otel_gym.tracing.endpoint import OtlpEndpoint

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.command()
@directory_argument
@click.option("--follow", is_flag=True, help="Go on with what is appended, until interrupted.")
@rollouts_option
@click.option(
    "--since",
    metavar="T",
    help="Only what was completed since: Unix seconds, an ISO date and time, or 30m, 2h, 1d.",
)
@click.option(
    "--endpoint",
    "--otlp-endpoint",
    type=OtlpUrl(),
    metavar="URL",
    help="OTLP backend; else OTEL_EXPORTER_OTLP_ENDPOINT or the configuration.",
)
@click.option("--out", type=FILE, metavar="FILE", help="Write OTLP JSON lines to a file instead.")
@run_id_option
@click.option(
    "--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes to use."
)
@config_option("for the otel_gym block")
@json_option
def command(
    directory: str,
    follow: bool,
    rollouts: tuple[str, ...],
    since: str | None,
    endpoint: str | None,
    out: str | None,
    run_id: str | None,
    jobs: int,
    config: str | None,
    as_json: bool,
) -> int:
    """Export the records of a capture directory as spans.

    Running it again is harmless: the same records give the same spans. Exit code 1 where a backend refused some or stayed away, or a file could not be read.
    """
    from otel_gym.tracing.backfill import Selection

    root = existing_directory(directory)
    settings = load_settings(Path(config) if config else None)
    target = _target(settings, endpoint, out)
    if follow:
        if rollouts or since or jobs > 1 or target is None:
            raise UsageProblem(
                "--follow: exports whatever is appended to a backend; leave --rollout, --since, --jobs and --out away"
            )
        run = run_of(root, run_id)
        exported, is_done = _follow(root, run, settings, target)
        if as_json:
            print_json({"run_id": run.run_id, "spans": exported, "complete": is_done})
        else:
            click.echo(f"exported {counted(exported, 'span')} to {target.shown}")
        return 0 if is_done else 1
    selection = Selection(
        frozenset(rollouts) if rollouts else None, None if since is None else since_seconds(since)
    )
    chosen = chosen_rollouts(root, selection)
    run = run_of(root, run_id)
    try:
        summary = _export(root, run, settings, target, out, selection, chosen, jobs)
    except ExportError as error:
        if target is None:
            raise UsageProblem(str(error)) from None
        raise
    where = target.shown if target is not None else str(out)
    if as_json:
        print_json(
            {
                "run_id": run.run_id,
                "to": where,
                "spans": summary.spans,
                "calls": summary.calls,
                "rollouts": summary.rollouts,
                "synthesized": summary.synthesized,
                "damaged": summary.damaged,
                "unreadable": summary.unreadable,
                "parked": summary.parked,
            }
        )
    else:
        click.echo(_sentence(summary, where))
    return 1 if summary.parked or summary.unreadable else 0


def run_of(directory: Path, run_id: str | None) -> Run:
    """The run of a directory, made where it has none (as in directories of NeMo Gym). Raises `UsageProblem`."""
    found = read_run(directory)
    if found is not None:
        if run_id is not None and run_id != found.run_id:
            raise UsageProblem(
                f"--run-id {run_id}: {directory} is run {found.run_id}; leave the option away"
            )
        return found
    try:
        return open_run(directory, run_id=run_id)
    except StoreError as error:
        if run_id is None:
            raise UsageProblem(f"{error}; give --run-id ID to export without it") from None
        return Run(schema=1, run_id=run_id, created_at=time.time(), resource=default_resource())


def since_seconds(value: str, now: float | None = None) -> float:
    """A point in time as Unix seconds: a number, an ISO date and time (UTC where it names no zone), or an age. Raises `UsageProblem`."""
    text = value.strip()
    if text[-1:] in _UNITS_S and text[:-1].replace(".", "", 1).isdigit():
        return (time.time() if now is None else now) - float(text[:-1]) * _UNITS_S[text[-1]]
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if math.isfinite(number):
            return number
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageProblem(
            f"--since {value}: must be Unix seconds, an ISO date and time, or an age such as 2h"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _target(settings: Settings, endpoint: str | None, out: str | None) -> OtlpEndpoint | None:
    from otel_gym.tracing.endpoint import traces_endpoint

    if out is not None:
        if endpoint is not None:
            raise UsageProblem("--endpoint and --out: choose one of them")
        if Path(out).is_dir() or not Path(out).absolute().parent.is_dir():
            raise UsageProblem(f"--out {out}: name a file in an existing directory")
        return None
    target = (
        traces_endpoint(endpoint, explicit=True)
        if endpoint is not None
        else traces_endpoint(settings.otlp_endpoint)
    )
    if target is None:
        raise UsageProblem(
            "no backend; give --endpoint URL or --out FILE, or set OTEL_EXPORTER_OTLP_ENDPOINT"
        )
    return target


def _export(
    root: Path,
    run: Run,
    settings: Settings,
    target: OtlpEndpoint | None,
    out: str | None,
    selection: Selection,
    chosen: list[tuple[str, int]],
    jobs: int,
) -> Summary:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from otel_gym.cli.output import console
    from otel_gym.tracing.backfill import export_rollouts
    from otel_gym.tracing.jobs import export_in_parallel
    from otel_gym.tracing.options import span_options
    from otel_gym.tracing.sinks import EndpointSink, FileSink

    options = span_options(settings)
    bar = Progress(
        TextColumn("exporting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rollouts"),
        TimeRemainingColumn(),
        console=console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("", total=len(chosen))

        def on_rollout(_: str) -> None:
            bar.advance(task)

        if target is not None and jobs > 1 and len(chosen) > 1:
            return export_in_parallel(
                root,
                chosen,
                run,
                options,
                target,
                jobs=jobs,
                since_s=selection.since_s,
                on_rollout=on_rollout,
                batch_max_spans=settings.otel_gym.export_batch_max_spans,
                batch_max_bytes=settings.otel_gym.export_batch_max_bytes,
            )
        sink = (
            FileSink(Path(str(out)), run, options)
            if target is None
            else EndpointSink(
                root,
                run,
                options,
                target,
                batch_max_spans=settings.otel_gym.export_batch_max_spans,
                batch_max_bytes=settings.otel_gym.export_batch_max_bytes,
            )
        )
        return export_rollouts(
            root,
            [rollout_id for rollout_id, _ in chosen],
            run,
            options,
            sink,
            since_s=selection.since_s,
            on_rollout=on_rollout,
        )


def _follow(root: Path, run: Run, settings: Settings, target: OtlpEndpoint) -> tuple[int, bool]:
    """Exports until a signal comes; (spans exported, whether nothing was left)."""
    from otel_gym.tracing.metrics import install_metrics
    from otel_gym.tracing.options import span_options
    from otel_gym.tracing.pipeline import Pipeline, pipeline_limits

    pipeline = Pipeline(
        root, run, span_options(settings), target, limits=pipeline_limits(settings), follow=True
    )
    if settings.otlp_endpoint is None:
        settings = settings.model_copy(
            update={"otlp_endpoint": target.url.removesuffix("/v1/traces")}
        )
    metrics = install_metrics(settings, run=run, pipeline=pipeline)
    ended = threading.Event()

    def end(*_: Any) -> None:
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        pipeline.start()
        click.echo(
            f"following {root} (run {printable(run.run_id, 200)}) to {target.shown}", err=True
        )
        while not ended.wait(0.5):
            pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        is_done = pipeline.close(settings.otel_gym.shutdown_timeout)
        if metrics is not None:
            metrics.close(settings.otel_gym.shutdown_timeout)
    return pipeline.exported, is_done


def _sentence(summary: Summary, where: str) -> str:
    parts = [counted(summary.calls, "call"), counted(summary.rollouts, "rollout")]
    if summary.synthesized:
        parts.append(f"{counted(summary.synthesized, 'root')} made from calls")
    text = f"exported {counted(summary.spans, 'span')} ({', '.join(parts)}) to {where}"
    if summary.damaged:
        text += f"; {counted(summary.damaged, 'damaged line')} left out"
    if summary.unreadable:
        text += f"; {counted(summary.unreadable, 'file')} could not be read"
    if summary.parked:
        text += f"; {summary.parked} refused by the backend, see .otel-gym/parked"
    return text
