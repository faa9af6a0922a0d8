"""Export from files on several cores: rollouts are dealt out to processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from otel_gym.correlation.run import Run
from otel_gym.tracing.backfill import Summary, export_rollouts
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.sinks import EndpointSink

PART_BYTES: Final = 32 * 1024 * 1024
"""Files dealt out together, unless one alone is larger."""


def parts_of(rollouts: Sequence[tuple[str, int]], part_bytes: int = PART_BYTES) -> list[list[str]]:
    """The rollouts (id, size) in parts of about `part_bytes`, in order."""
    parts: list[list[str]] = []
    size = part_bytes
    for rollout_id, size_bytes in rollouts:
        if size >= part_bytes:
            parts.append([])
            size = 0
        parts[-1].append(rollout_id)
        size += size_bytes
    return parts


def export_in_parallel(
    directory: Path,
    rollouts: Sequence[tuple[str, int]],
    run: Run,
    options: SpanOptions,
    endpoint: OtlpEndpoint,
    *,
    jobs: int,
    since_s: float | None = None,
    on_rollout: Callable[[str], None] | None = None,
    batch_max_spans: int = 512,
    batch_max_bytes: int = 3 * 1024 * 1024,
) -> Summary:
    """As `export_rollouts`, over `jobs` processes. Raises `ExportError`."""
    limits = (batch_max_spans, batch_max_bytes)
    total = sum(size for _, size in rollouts)
    parts = parts_of(rollouts, min(PART_BYTES, max(1, total // (jobs * 4))))
    summary = Summary()
    # Fresh processes: a fork would take over locks and connections of whatever runs here.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {
            pool.submit(
                _export_part, directory, part, run, options, endpoint, since_s, limits
            ): part
            for part in parts
        }
        try:
            for done in as_completed(waiting):
                summary.add(done.result())
                if on_rollout is not None:
                    for rollout_id in waiting[done]:
                        on_rollout(rollout_id)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return summary


def _export_part(
    directory: Path,
    rollout_ids: list[str],
    run: Run,
    options: SpanOptions,
    endpoint: OtlpEndpoint,
    since_s: float | None,
    limits: tuple[int, int],
) -> Summary:
    max_spans, max_bytes = limits
    sink = EndpointSink(
        directory, run, options, endpoint, batch_max_spans=max_spans, batch_max_bytes=max_bytes
    )
    return export_rollouts(directory, rollout_ids, run, options, sink, since_s=since_s)
