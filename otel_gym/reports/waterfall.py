"""A rollout's calls on a time axis, in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from otel_gym.capture.record import ModelCallRecord
from otel_gym.reports.summary import RolloutSummary, is_stream
from otel_gym.reports.terminal import plain_table, printable

LONGEST_BAR: Final = 40
SHORTEST_BAR: Final = 8
"""Width of the time axis, in characters; what the other columns leave of a terminal, between these."""
_GAP: Final = 2
_COLUMNS: Final = ("call", "dialect", "time", "start", "ms", "ttft", "in", "cached", "out", "end")


def waterfall(
    records: Sequence[ModelCallRecord], title: str, *, width: int = 120, ascii_only: bool = False
) -> Table:
    """One row a call: a bar from start to completion, light until the first chunk, and what the call used.

    The bars make room for the figures where `width`, in characters, is short.
    """
    waiting, running = (":", "#") if ascii_only else ("░", "█")
    legend = f"({waiting} waiting for the first chunk, ~ streamed)"
    table = plain_table(title=f"{printable(title)} {legend}")
    for name in _COLUMNS:
        is_text = name in ("dialect", "time", "end")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=True)
    timed = [r for r in records if r.started_at is not None and r.completed_at is not None]
    if not timed:
        return table
    begin = min(r.started_at for r in timed if r.started_at is not None)
    span_s = max(1e-6, *(r.completed_at - begin for r in timed if r.completed_at is not None))
    cells = [_cells(record, begin) for record in records]
    taken = sum(
        max(cell_len(name), *(cell_len(row[name]) for row in cells)) + _GAP
        for name in _COLUMNS
        if name != "time"
    )
    bar_width = max(SHORTEST_BAR, min(LONGEST_BAR, width - taken))
    for record, row in zip(records, cells, strict=True):
        failed = record.error_category is not None
        start_s = (record.started_at or begin) - begin
        bar = _bar(record, start_s, span_s, bar_width)
        marks = Text(" " * bar[0])
        marks.append(waiting * bar[1], style="cyan")
        marks.append(running * bar[2], style="red" if failed else "green")
        marks.append(" " * (bar_width - sum(bar)))
        styled = {"time": marks, "end": Text(row["end"], style="red" if failed else "")}
        table.add_row(*(styled.get(name) or Text(row[name]) for name in _COLUMNS))
    return table


def _cells(record: ModelCallRecord, begin: float) -> dict[str, str]:
    """What stands in a call's row beside its bar."""
    start_s = (record.started_at or begin) - begin
    dialect = printable(record.dialect or "?", 16)
    return {
        "call": str(record.call_index),
        "dialect": f"{dialect} ~" if is_stream(record) else dialect,
        "start": printable(f"+{start_s:.2f}s", 16),
        "ms": number(record.latency_total_ms),
        "ttft": number(record.latency_ttft_ms) if is_stream(record) else "",
        "in": number(record.tokens_in),
        "cached": number(record.cached_tokens),
        "out": number(record.tokens_out),
        "end": printable(record.error_category or record.finish_reason or "", 24),
    }


def _bar(
    record: ModelCallRecord, start_s: float, span_s: float, width: int
) -> tuple[int, int, int]:
    """(empty, waiting, running) characters of a call's bar."""
    total_s = (record.latency_total_ms or 0.0) / 1000
    first_s = (record.latency_ttft_ms or 0.0) / 1000 if is_stream(record) else 0.0
    left = min(int(_share(start_s, span_s) * width), width - 1)
    length = max(1, min(round(_share(total_s, span_s) * width), width - left))
    waiting = min(int(_share(first_s, span_s) * width), length)
    return left, waiting, length - waiting


def _share(part_s: float, whole_s: float) -> float:
    """From 0 to 1, whatever the clocks of a record say."""
    share = part_s / whole_s
    return 0.0 if math.isnan(share) else max(0.0, min(share, 1.0))


def rollout_table(summaries: Sequence[RolloutSummary]) -> Table:
    """One row a rollout."""
    table = plain_table()
    table.add_column("rollout", no_wrap=True)
    for name in ("calls", "tokens in", "out", "cached", "ttft ms", "duration ms", "errors"):
        table.add_column(name, justify="right", no_wrap=True)
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
    return printable(f"{value:,.0f}", 16)


def _partial(value: int | None, known: int, calls: int) -> str:
    """A sum, marked where not every call reported its part."""
    return number(value) + ("" if known == calls or value is None else f" ({known} of {calls})")
