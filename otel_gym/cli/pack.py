"""`otel-gym pack DIR`: compress the rollouts that nobody writes any more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Final

import click

from otel_gym.capture.pack import DEFAULT_IDLE_S, PackOutcome, pack_rollout
from otel_gym.capture.store import CaptureStore
from otel_gym.cli.options import Seconds, directory_argument, json_option
from otel_gym.cli.output import console, counted, existing_directory, print_json
from otel_gym.errors import OtelGymError

_AT_ONCE: Final = 4
"""Rollouts that are packed at a time: most of the time goes into waiting for syncs."""


@click.command()
@directory_argument
@click.option(
    "--idle",
    type=Seconds(0),
    default=DEFAULT_IDLE_S,
    show_default=True,
    metavar="SECONDS",
    help="Leave rollouts alone that changed in this many seconds.",
)
@click.option(
    "--level", default=9, show_default=True, type=click.IntRange(1, 19), help="zstd level."
)
@json_option
def command(directory: str, idle: float, level: int, as_json: bool) -> None:
    """Compress the rollouts that nobody writes any more.

    Each of the capture directory DIR becomes a .capture.jsonl.zst. An original is removed only after its compressed form was read back and compared. Every reader takes both forms. Exit code 1 where a rollout could not be
    packed.
    """
    store = CaptureStore(existing_directory(directory))
    outcomes: list[PackOutcome] = []
    failures: dict[str, str] = {}

    def packed_or_not(rollout_id: str) -> PackOutcome | OtelGymError | OSError:
        try:
            return pack_rollout(store, rollout_id, idle_s=idle, level=level)
        except (OtelGymError, OSError) as error:
            return error

    rollouts = list(store.rollouts())
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for rollout_id, outcome in zip(rollouts, pool.map(packed_or_not, rollouts), strict=True):
            if isinstance(outcome, PackOutcome):
                outcomes.append(outcome)
            elif isinstance(outcome, OSError):
                failures[rollout_id] = (
                    f"{store.path_for(rollout_id)}: {outcome.strerror or outcome}"
                )
            else:
                failures[rollout_id] = str(outcome)
    packed = [outcome for outcome in outcomes if outcome.state == "packed"]
    if as_json:
        print_json({"rollouts": [asdict(outcome) for outcome in outcomes], "failures": failures})
    else:
        screen = console()
        before = sum(outcome.plain_bytes for outcome in packed)
        after = sum(outcome.packed_bytes for outcome in packed)
        left = sum(outcome.state == "open" for outcome in outcomes)
        ratio = f", {before / after:.1f}x smaller" if after else ""
        screen.print(
            f"Packed {counted(len(packed), 'rollout')}: {before:,} bytes to {after:,}{ratio}."
        )
        if left:
            were = "was" if left == 1 else "were"
            screen.print(
                f"{counted(left, 'rollout')} {were} left alone: written within the last {idle:g} s (--idle), or still open."
            )
        for rollout_id, reason in failures.items():
            screen.print(f"{rollout_id}: {reason}", markup=False, soft_wrap=True)
    if failures:
        raise click.exceptions.Exit(1)
