"""Which rollouts the run page shows: filters, order and page, from the query string."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args
from urllib.parse import urlencode

from otel_gym.errors import UsageProblem

State = Literal["", "error", "clean", "truncated", "incomplete", "complete", "damaged"]
STATES: Final[tuple[str, ...]] = get_args(State)

SORTS: Final = {
    "id": "task_order IS NULL, task_order, task, rollout_order, attempt, rollout_id",
    "started": "started_at",
    "calls": "calls",
    "model": "models",
    "duration": "duration_ms",
    "tokens_in": "tokens_in",
    "tokens_out": "tokens_out",
    "cache": "CAST(cached_tokens AS REAL) / NULLIF(cached_of, 0)",
    "ttft": "ttft_ms",
    "errors": "errors",
    "reward": "reward",
}
"""What the table can be sorted by, and the SQL of it."""

PAGE_SIZE: Final = 100
_CONDITIONS: Final = {
    "error": "(errors > 0 OR error IS NOT NULL)",
    "clean": "(errors = 0 AND error IS NULL)",
    "truncated": "truncated > 0",
    "incomplete": "incomplete = 1",
    "complete": "incomplete = 0",
    "damaged": "damaged > 0",
}


@dataclass(frozen=True, slots=True)
class RunQuery:
    """One choice of rollouts."""

    q: str = ""
    """Text that the rollout id contains."""
    task: str = ""
    attempt: int | None = None
    model: str = ""
    state: str = ""
    reward_min: float | None = None
    reward_max: float | None = None
    sort: str = "started"
    descending: bool = True
    page: int = 1

    def where(self) -> tuple[str, list[Any]]:
        """The SQL condition and its values."""
        parts: list[str] = []
        values: list[Any] = []
        if self.q:
            parts.append("instr(lower(rollout_id), ?) > 0")
            values.append(self.q.lower())
        if self.task:
            parts.append("task = ?")
            values.append(self.task)
        if self.attempt is not None:
            parts.append("attempt = ?")
            values.append(self.attempt)
        if self.model:
            parts.append("instr(char(10) || models || char(10), char(10) || ? || char(10)) > 0")
            values.append(self.model)
        if self.state:
            parts.append(_CONDITIONS[self.state])
        if self.reward_min is not None:
            parts.append("reward >= ?")
            values.append(self.reward_min)
        if self.reward_max is not None:
            parts.append("reward <= ?")
            values.append(self.reward_max)
        return " AND ".join(parts) or "1", values

    def order(self) -> str:
        """The SQL order; what is not known comes last either way."""
        direction = "DESC" if self.descending else "ASC"
        if self.sort == "id":
            return ", ".join(f"{part} {direction}" for part in SORTS["id"].split(", "))
        if self.descending:
            return f"{SORTS[self.sort]} DESC, rollout_id"  # NULL is the least value
        return f"{SORTS[self.sort]} IS NULL, {SORTS[self.sort]}, rollout_id"

    @property
    def filtered(self) -> bool:
        """Whether any rollout may be left out."""
        return self.where()[0] != "1"

    def url(self, **changes: Any) -> str:
        """The query string of this choice with some parts changed; empty for the plain run page."""
        values: dict[str, Any] = {
            "q": self.q,
            "task": self.task,
            "attempt": self.attempt,
            "model": self.model,
            "state": self.state,
            "reward_min": self.reward_min,
            "reward_max": self.reward_max,
            "sort": self.sort,
            "order": "desc" if self.descending else "asc",
            "page": self.page,
            **changes,
        }
        plain = {"sort": "started", "order": "desc", "page": 1}
        kept = {k: v for k, v in values.items() if v not in (None, "") and plain.get(k) != v}
        return f"?{urlencode(kept)}" if kept else "?"


def run_query(values: Mapping[str, str]) -> RunQuery:
    """The choice that a query string makes. Raises `UsageProblem` for a value that is none."""
    sort = values.get("sort") or "started"
    if sort not in SORTS:
        raise UsageProblem(f"sort knows {', '.join(SORTS)}, not {sort[:40]!r}")
    state = values.get("state", "")
    if state not in STATES:
        raise UsageProblem(f"state knows {', '.join(STATES[1:])}, not {state[:40]!r}")
    order = values.get("order") or "desc"
    if order not in ("asc", "desc"):
        raise UsageProblem(f"order is asc or desc, not {order[:40]!r}")
    return RunQuery(
        q=values.get("q", "").strip()[:200],
        task=values.get("task", "").strip()[:200],
        attempt=_whole(values, "attempt"),
        model=values.get("model", "")[:500],
        state=state,
        reward_min=_real(values, "reward_min"),
        reward_max=_real(values, "reward_max"),
        sort=sort,
        descending=order == "desc",
        page=max(1, _whole(values, "page") or 1),
    )


def _whole(values: Mapping[str, str], key: str) -> int | None:
    value = values.get(key, "").strip()
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise UsageProblem(f"{key} is a whole number, not {value[:40]!r}")
    return int(value)


def _real(values: Mapping[str, str], key: str) -> float | None:
    value = values.get(key, "").strip()
    if not value:
        return None
    try:
        return float(value)
    except ValueError:
        raise UsageProblem(f"{key} is a number, not {value[:40]!r}") from None
