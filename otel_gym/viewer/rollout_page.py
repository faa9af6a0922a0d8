"""What the page of one rollout shows, and its JSON twin."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from otel_gym.viewer.index.indexer import Index
from otel_gym.viewer.run_page import shown_rollout
from otel_gym.viewer.timeline import timeline

CALLS_PER_PAGE: Final = 500
"""Calls in the waterfall of one page; the overview always has them all."""

ATTEMPTS_SHOWN: Final = 50

_CALL_KEYS: Final = (
    "number",
    "model_call_id",
    "span_id",
    "dialect",
    "model",
    "started_at",
    "completed_at",
    "latency_ms",
    "ttft_ms",
    "streamed",
    "terminal",
    "status_code",
    "error",
    "failed",
    "truncated",
    "finish_reason",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "cached_tokens",
    "cache_creation_tokens",
    "tool_calls",
    "resend_of",
    "messages",
    "repeated",
    "extends",
    "gist",
    "offset_bytes",
    "length_bytes",
)


class RolloutPage:
    """Data of the rollout page."""

    def __init__(self, index: Index, jaeger_ui: str | None) -> None:
        self._index = index
        self._jaeger_ui = jaeger_ui

    def data(self, rollout_id: str, page: int = 1) -> dict[str, Any] | None:
        """The rollout with all its calls, null where there is none. `page` only says which of them the waterfall shows."""
        index = self._index
        row = index.rollout(rollout_id)
        if row is None:
            return None
        rows = index.calls(row["id"])
        line = timeline(rows)
        by_number = {call["number"]: call for call in rows}
        calls = []
        for placed in line.calls:
            call = shown_call(by_number[placed.number])
            call.update(
                start_s=placed.start_s,
                end_s=placed.end_s,
                first_s=placed.first_s,
                lane=placed.lane,
                beside=placed.beside,
            )
            calls.append(call)
        pages = max(1, -(-len(calls) // CALLS_PER_PAGE))
        outside = sum(gap.end_s - gap.start_s for gap in line.gaps)
        return {
            "version": self.version(row),
            "rollout": {
                **shown_rollout(row),
                "outside_model_ms": round(outside * 1000, 2),
                "file": index.layout.records(rollout_id).name,
                "record": index.rollout_record(rollout_id),
            },
            "attempts": self._attempts(row),
            "attempts_total": self._index.database.tuples(
                "SELECT count(*) FROM rollouts WHERE base=?", (row["base"],)
            )[0][0],
            "previous": self._neighbour(row, "<", "DESC"),
            "next": self._neighbour(row, ">", "ASC"),
            "others": self._others(row),
            "begin": line.begin,
            "length_s": line.length_s,
            "lanes": line.lanes,
            "calls": calls,
            "gaps": [asdict(gap) for gap in line.gaps],
            "page": min(max(page, 1), pages),
            "pages": pages,
            "jaeger_url": self._jaeger_url(row["trace_id"]),
        }

    @staticmethod
    def version(row: dict[str, Any]) -> str:
        """Changes when the page would."""
        return f"{row['indexed_bytes']}.{row['record_mtime_ns'] or 0}.{row['incomplete']}"

    def _jaeger_url(self, trace_id: str) -> str | None:
        return f"{self._jaeger_ui}/trace/{trace_id}" if self._jaeger_ui else None

    def _attempts(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """This attempt with those before and after it, at most `ATTEMPTS_SHOWN`."""
        rows = self._index.database.rows(
            "SELECT * FROM (SELECT * FROM rollouts WHERE base=:base AND attempt<=:attempt"
            " ORDER BY attempt DESC LIMIT :before)"
            " UNION ALL SELECT * FROM (SELECT * FROM rollouts WHERE base=:base AND attempt>:attempt"
            " ORDER BY attempt LIMIT :after) ORDER BY attempt",
            {
                "base": row["base"],
                "attempt": row["attempt"],
                "before": ATTEMPTS_SHOWN // 2,
                "after": ATTEMPTS_SHOWN - ATTEMPTS_SHOWN // 2,
            },
        )
        if len(rows) < 2:
            return [shown_rollout(one) for one in rows]
        return [{**shown_rollout(one), "timeline": self._strip(one)} for one in rows]

    def _strip(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """When the calls of an attempt began and ended, in seconds after its first."""
        rows = self._index.calls(row["id"])[:CALLS_PER_PAGE]
        failed = {call["number"]: bool(call["failed"]) for call in rows}
        return [
            {
                "number": placed.number,
                "start_s": placed.start_s,
                "end_s": placed.end_s,
                "failed": failed[placed.number],
            }
            for placed in timeline(rows).calls
        ]

    def _others(self, row: dict[str, Any]) -> list[str]:
        """Rollouts of the same task, for comparison."""
        rows = self._index.database.tuples(
            "SELECT rollout_id FROM rollouts WHERE task=? AND rollout_id<>?"
            " ORDER BY rollout_order, attempt LIMIT 50",
            (row["task"], row["rollout_id"]),
        )
        return [name for (name,) in rows]

    def _neighbour(self, row: dict[str, Any], comparison: str, direction: str) -> str | None:
        found = self._index.database.row(
            "SELECT rollout_id FROM rollouts WHERE task=?"
            f" AND (rollout_order, attempt, rollout_id) {comparison} (?, ?, ?)"
            f" ORDER BY rollout_order {direction}, attempt {direction}, rollout_id {direction} LIMIT 1",
            (row["task"], row["rollout_order"], row["attempt"], row["rollout_id"]),
        )
        return str(found["rollout_id"]) if found else None


def shown_call(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the index as it is shown."""
    shown = {key: row[key] for key in _CALL_KEYS}
    for key in ("streamed", "failed", "truncated"):
        shown[key] = bool(row[key])
    cached, of = row["cached_tokens"], row["tokens_in"]
    shown["cache_share"] = cached / of if cached is not None and of else None
    return shown
