"""A rollout's calls on a time axis, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from otel_gym.capture.record import ModelCallRecord
from otel_gym.reports.summary import RolloutSummary, is_stream
from otel_gym.reports.terminal import printable

BAR_WIDTH: Final = 40
"""Width of the time axis, in characters."""


def waterfall(records: Sequence[ModelCallRecord], title: str) -> Table:
    """One row a call: a bar from start to completion, light until the first chunk, and what the call used."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1))
    table.add_column("call", justify="right")
    table.add_column("dialect", no_wrap=True)
    table.add_column("time", no_wrap=True, min_width=BAR_WIDTH)
    for name in ("start", "ms", "ttft", "in", "cached", "out"):
        table.add_column(name, justify="right")
    table.add_column("end")
    timed = [r for r in records if r.started_at is not None and r.completed_at is not None]
    if not timed:
        return table
    begin = min(r.started_at for r in timed if r.started_at is not None)
    span_s = max(r.completed_at - begin for r in timed if r.completed_at is not None) or 1e-6
    for record in records:
        start_s = (record.started_at or begin) - begin
        dialect = f"{record.dialect or '?'}{' ~' if is_stream(record) else ''}"
        table.add_row(
            str(record.call_index),
            dialect,
            _bar(record, start_s, span_s),
            f"+{start_s:.2f}s",
            number(record.latency_total_ms),
            number(record.latency_ttft_ms) if is_stream(record) else "",
            number(record.tokens_in),
            number(record.cached_tokens),
            number(record.tokens_out),
            Text(
                printable(record.error_category or record.finish_reason or "", 24),
                style="red" if record.error_category else "",
            ),
        )
    return table


def _bar(record: ModelCallRecord, start_s: float, span_s: float) -> Text:
    total_s = (record.latency_total_ms or 0.0) / 1000
    first_s = (record.latency_ttft_ms or 0.0) / 1000 if is_stream(record) else 0.0
    left = min(int(start_s / span_s * BAR_WIDTH), BAR_WIDTH - 1)
    length = max(1, min(round(total_s / span_s * BAR_WIDTH), BAR_WIDTH - left))
    waiting = min(int(first_s / span_s * BAR_WIDTH), length)
    bar = Text(" " * left)
    bar.append("░" * waiting, style="cyan")
    bar.append("█" * (length - waiting), style="red" if record.error_category else "green")
    bar.append(" " * (BAR_WIDTH - left - length))
    return bar


def rollout_table(summaries: Sequence[RolloutSummary]) -> Table:
    """One row a rollout."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("rollout", no_wrap=True)
    for name in ("calls", "tokens in", "out", "cached", "ttft ms", "duration ms", "errors"):
        table.add_column(name, justify="right")
    for one in summaries:
        table.add_row(
            one.rollout_id,
            str(one.calls),
            _partial(one.tokens_in, one.tokens_in_known, one.calls),
            _partial(one.tokens_out, one.tokens_out_known, one.calls),
            number(one.cached_tokens),
            number(one.ttft_ms),
            number(one.duration_ms),
            Text(str(one.errors), style="red" if one.errors else ""),
        )
    return table


def number(value: float | int | None) -> str:
    """A figure for a table; a dash where it is not known."""
    if value is None:
        return "-"
    return f"{value:,.0f}"


def _partial(value: int | None, known: int, calls: int) -> str:
    """A sum, marked where not every call reported its part."""
    return number(value) + ("" if known == calls or value is None else f" ({known} of {calls})")
