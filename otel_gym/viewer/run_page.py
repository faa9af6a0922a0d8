"""What the run page shows, and its JSON twin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from otel_gym.viewer.index.indexer import Index
from otel_gym.viewer.kept import Kept
from otel_gym.viewer.run_query import PAGE_SIZE, RunQuery
from otel_gym.viewer.series import EARLIEST_S, LATEST_S, over_time

SHOWN = (
    "rollout_id",
    "task",
    "attempt",
    "trace_id",
    "calls",
    "errors",
    "truncated",
    "damaged",
    "tokens_in",
    "tokens_in_known",
    "tokens_out",
    "tokens_out_known",
    "cached_tokens",
    "cache_share",
    "started_at",
    "completed_at",
    "duration_ms",
    "model_ms",
    "ttft_ms",
    "models",
    "reward",
    "error",
    "agent",
    "incomplete",
)
"""Keys of a rollout in every page and twin, in order."""


def shown_rollout(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the index as it is shown."""
    shown = dict(row)
    shown["models"] = [name for name in row["models"].split("\n") if name]
    shown["incomplete"] = bool(row["incomplete"])
    of = row["cached_of"]
    shown["cache_share"] = row["cached_tokens"] / of if of else None
    return {key: shown[key] for key in SHOWN}


class RunPage:
    """Data of the run page."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._totals = Kept(index, "totals", self._compute_totals)
        self._series = Kept(index, "series", lambda: over_time(index.database))
        self._models = Kept(index, "models", self._compute_models)

    def prepare(self) -> None:
        """Compute what every page needs, before somebody asks."""
        for kept in (self._totals, self._series, self._models):
            kept.get()

    def data(self, query: RunQuery) -> dict[str, Any]:
        """Totals, figures over time and one page of rollouts."""
        index = self._index
        where, values = query.where()
        totals = self._totals.get()
        if query.filtered:
            [(matching,)] = index.database.tuples(
                f"SELECT count(*) FROM rollouts WHERE {where}", values
            )
        else:
            matching = totals["rollouts"]
        pages = max(1, -(-matching // PAGE_SIZE))
        page = min(query.page, pages)
        rows = index.database.rows(
            f"SELECT * FROM rollouts WHERE {where} ORDER BY {query.order()} LIMIT ? OFFSET ?",
            [*values, PAGE_SIZE, (page - 1) * PAGE_SIZE],
        )
        progress = index.progress
        return {
            "directory": os.fsencode(index.layout.root).decode("utf-8", "backslashreplace"),
            "run": {
                "run_id": index.run.run_id if index.named_run else None,
                "created_at": index.run.created_at if index.named_run else None,
                "service": index.run.resource.get("service.name", "otel-gym"),
            },
            "version": self.version(),
            "indexing": {
                "running": progress.running and progress.total > progress.done,
                "done": progress.done,
                "total": progress.total,
                "complete": progress.first_done,
            },
            "problem": index.problem,
            "totals": totals,
            "series": self._series.get(),
            "models": self._models.get(),
            "matching": matching,
            "page": page,
            "pages": pages,
            "page_size": PAGE_SIZE,
            "rollouts": [shown_rollout(row) for row in rows],
        }

    def version(self) -> str:
        """Changes when the page would."""
        progress = self._index.progress
        return f"{self._index.generation}.{int(progress.first_done)}"

    def _compute_totals(self) -> dict[str, Any]:
        row = self._index.database.row(
            "SELECT count(*) AS rollouts, count(DISTINCT task) AS tasks, sum(calls) AS calls,"
            " sum(errors) AS errors, sum(truncated) AS truncated, sum(incomplete) AS incomplete,"
            " sum(damaged) AS damaged, sum(tokens_in) AS tokens_in, sum(tokens_in_known) AS tokens_in_known,"
            " sum(tokens_out) AS tokens_out, sum(tokens_out_known) AS tokens_out_known,"
            " sum(cached_tokens) AS cached_tokens, sum(cached_of) AS cached_of, avg(reward) AS reward_mean,"
            " count(reward) AS rewarded,"
            f" ifnull(min(started_at) FILTER (WHERE started_at BETWEEN {EARLIEST_S} AND {LATEST_S}), min(started_at)) AS started_at,"
            f" ifnull(max(completed_at) FILTER (WHERE completed_at BETWEEN {EARLIEST_S} AND {LATEST_S}), max(completed_at)) AS completed_at,"
            " sum(model_ms) AS model_ms, sum(duration_ms) AS duration_ms FROM rollouts"
        )
        assert row is not None
        of = row.pop("cached_of")
        row["cache_share"] = row["cached_tokens"] / of if of else None
        for key in ("calls", "errors", "truncated", "incomplete", "damaged"):
            row[key] = row[key] or 0
        return row

    def _compute_models(self) -> list[str]:
        rows = self._index.database.tuples("SELECT DISTINCT models FROM rollouts LIMIT 1000")
        return sorted({name for (models,) in rows for name in models.split("\n") if name})
