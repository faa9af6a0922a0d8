"""Finds traces: the index says which rollouts come into question, their spans decide."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_gym.tracing.encode import scope_version
from otel_gym.tracing.semconv import SCOPE_NAME
from otel_gym.tracing.span_data import ERROR, SpanData
from otel_gym.viewer.index.indexer import Index
from otel_gym.viewer.jaeger.query import TraceQuery
from otel_gym.viewer.jaeger.text import as_text
from otel_gym.viewer.jaeger.traces import Trace, Traces

BUDGET_S: Final = 10.0
"""Longest search over the files, in seconds; what was found until then is the answer."""
_CHUNK: Final = 200
KINDS: Final = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}
_ROOT: Final = "invoke_agent"


@dataclass(slots=True)
class Found:
    """The answer to a search, the newest first."""

    traces: list[Trace] = field(default_factory=list)
    looked_at: int = 0
    """How many rollouts were read."""
    complete: bool = True
    """False where the time was over before the limit or the end was reached."""


class Search:
    """Answers searches over one run."""

    def __init__(self, traces: Traces, clock: Callable[[], float] = time.monotonic) -> None:
        self._traces = traces
        self._index = traces.index
        self._clock = clock

    def find(self, query: TraceQuery) -> Found:
        """The newest traces with a span that fits. Raises `OSError` where a file cannot be read."""
        found = Found()
        if query.service and query.service != self._traces.service:
            return found
        seen: set[str] = set()
        deadline = self._clock() + BUDGET_S
        for rollout_id in _candidates(self._index, query):
            if len(found.traces) >= query.limit:
                break
            if self._clock() > deadline:
                found.complete = False
                break
            found.looked_at += 1
            for trace in self._traces.in_rollout(rollout_id):
                if trace.trace_id not in seen and self._fits(trace, query):
                    seen.add(trace.trace_id)
                    found.traces.append(trace)
        del found.traces[query.limit :]
        return found

    def _fits(self, trace: Trace, query: TraceQuery) -> bool:
        return any(fits(span, self._traces.resource, query) for span in trace.spans)


def fits(span: SpanData, resource: Mapping[str, Any], query: TraceQuery) -> bool:
    """Whether one span is what the search asks for."""
    if query.operation and span.name != query.operation:
        return False
    if not query.start_ns <= span.start_ns <= query.end_ns:
        return False
    duration = span.end_ns - span.start_ns
    if query.duration_min_ns and duration < query.duration_min_ns:
        return False
    if query.duration_max_ns and duration > query.duration_max_ns:
        return False
    return all(_has(span, resource, key, value) for key, value in query.tags.items())


def _has(span: SpanData, resource: Mapping[str, Any], key: str, value: str) -> bool:
    """Whether the span, its resource or one of its events has the tag; values are compared as text."""
    if key == "error":
        return (span.status.code == ERROR) == (value.lower() == "true")
    own = {
        "span.kind": KINDS.get(span.kind, ""),
        "otel.status_code": "ERROR" if span.status.code == ERROR else "",
        "otel.status_description": span.status.description,
        "otel.scope.name": SCOPE_NAME,
        "otel.scope.version": scope_version(),
    }
    if own.get(key) == value:
        return True
    places = (span.attributes, resource, *(event.attributes for event in span.events))
    return any(key in place and as_text(place[key]) == value for place in places)


def _candidates(index: Index, query: TraceQuery) -> Iterator[str]:
    """Rollouts that may have a fitting span, those that began last first."""
    where = ["first_us <= ?", "last_us >= ?"]
    values: list[Any] = [_micros(query.end_ns), _micros(query.start_ns)]
    if query.operation and not query.operation.startswith(_ROOT):
        where.append("id IN (SELECT rollout FROM calls WHERE span_name = ?)")
        values.append(query.operation)
    if (rollout_id := query.tags.get("otel_gym.rollout.id")) is not None:
        where.append("rollout_id = ?")
        values.append(rollout_id)
    if (task := query.tags.get("otel_gym.task.index")) is not None and task.isdigit():
        where.append("task = ?")
        values.append(task)
    if (call := query.tags.get("otel_gym.model_call.id")) is not None:
        where.append("id IN (SELECT rollout FROM calls WHERE model_call_id = ?)")
        values.append(call)
    if query.tags.get("error", "").lower() == "true":
        where.append(
            "(error IS NOT NULL OR id IN (SELECT rollout FROM calls WHERE span_error = 1))"
        )
    sql = f"SELECT rollout_id FROM rollouts WHERE {' AND '.join(where)} ORDER BY first_us DESC, rollout_id LIMIT ? OFFSET ?"
    offset = 0
    while rows := index.database.tuples(sql, [*values, _CHUNK, offset]):
        yield from (name for (name,) in rows)
        offset += _CHUNK


def _micros(ns: int) -> int:
    return math.floor(max(min(ns, 2**63 - 1), -(2**63)) / 1000)
