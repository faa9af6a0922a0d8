"""What a search asks for, from the parameters of either version of the API."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from starlette.datastructures import QueryParams

from otel_gym.errors import UsageProblem

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1500
LOOKBACK_S: Final = 2 * 24 * 3600
"""How far back a v1 search without a start goes, as in Jaeger."""

_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|[\u00b5\u03bc]s|ms|s|m|h)", re.ASCII)
_RFC_3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class TraceQuery:
    """A search. A trace is found by one span that fits all of it."""

    service: str
    operation: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    start_ns: int = 0
    end_ns: int = 2**63 - 1
    duration_min_ns: int = 0
    duration_max_ns: int = 0
    """0 for any."""
    limit: int = DEFAULT_LIMIT


def v1_query(values: QueryParams) -> TraceQuery:
    """The search of `GET /api/traces`. Raises `UsageProblem`."""
    service = values.get("service", "")
    if not service:
        raise UsageProblem("parameter 'service' is required")
    now = time.time()
    return _checked(
        TraceQuery(
            service,
            values.get("operation", ""),
            _tags(values.getlist("tag"), values.getlist("tags")),
            _micros(values, "start", now - LOOKBACK_S),
            _micros(values, "end", now),
            duration_ns(values.get("minDuration", ""), "minDuration"),
            duration_ns(values.get("maxDuration", ""), "maxDuration"),
            _limit(values.get("limit", ""), "limit"),
        )
    )


def v3_query(values: QueryParams, *, paged: bool = False) -> TraceQuery:
    """The search of `GET /api/v3/traces`; names in camel case (Jaeger 2.19 on) or snake case (before). Raises `UsageProblem`.

    `paged` takes the size of a page as the limit, as `GET /api/v3/trace-summaries` does for a store without pages: there is one page.
    """

    def get(name: str) -> str:
        snake = re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name)
        return values.get(f"query.{name}") or values.get(f"query.{snake}") or ""

    times = [get("startTimeMin"), get("startTimeMax")]
    if not all(times):
        raise UsageProblem("query.startTimeMin and query.startTimeMax are required")
    if get("filter"):
        # Left out, a condition would give more traces than were asked for.
        raise UsageProblem("query.filter is not supported; use query.attributes")
    limit = get("searchDepth") or get("numTraces")
    if size := _page_size(values, limit, paged):
        limit = size
    return _checked(
        TraceQuery(
            get("serviceName"),
            get("operationName"),
            _tags([], [text] if (text := get("attributes")) else []),
            time_ns(times[0], "query.startTimeMin"),
            time_ns(times[1], "query.startTimeMax"),
            duration_ns(get("durationMin"), "query.durationMin"),
            duration_ns(get("durationMax"), "query.durationMax"),
            _limit(limit, "query.searchDepth"),
        )
    )


def trace_id_of(text: str) -> str:
    """A trace id as 32 hex digits; leading zeros may be left out. Raises `UsageProblem`."""
    if not re.fullmatch(r"[0-9a-fA-F]{1,32}", text, re.ASCII):
        raise UsageProblem(f"a trace id is 1 to 32 hex digits, not {text[:80]!r}")
    return text.lower().rjust(32, "0")


def duration_ns(text: str, name: str) -> int:
    """A duration as Go writes it (`1m30s`, `250ms`), 0 where it is empty. Raises `UsageProblem`."""
    if not text:
        return 0
    parts = _DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text or len(text) > 60:
        raise UsageProblem(
            f"unable to parse param '{name}': {text[:60]!r} is no duration such as 1.5s or 250ms"
        )
    return round(sum(float(number) * _UNITS_NS[unit] for number, unit in parts))


def time_ns(text: str, name: str) -> int:
    """A time of RFC 3339 in nanoseconds since the epoch. Raises `UsageProblem`."""
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise UsageProblem(f"malformed parameter {name}: {text[:60]!r} is no time of RFC 3339")
    zone = "+00:00" if match[3] in "Zz" else match[3]
    try:
        whole = datetime.datetime.fromisoformat(match[1].upper() + zone)
    except ValueError:
        raise UsageProblem(
            f"malformed parameter {name}: {text[:60]!r} is no time of RFC 3339"
        ) from None
    return int(whole.timestamp()) * 10**9 + int((match[2] or "").ljust(9, "0"))


def _checked(query: TraceQuery) -> TraceQuery:
    if query.duration_max_ns and query.duration_max_ns < query.duration_min_ns:
        raise UsageProblem("'maxDuration' should be greater than 'minDuration'")
    return query


def _micros(values: QueryParams, name: str, default_s: float) -> int:
    text = values.get(name, "")
    if not text:
        return int(default_s * 1e9)
    if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII):
        raise UsageProblem(f"unable to parse param '{name}': {text[:60]!r} is no whole number")
    return int(text) * 1000


def _limit(text: str, name: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    if not re.fullmatch(r"-?\d{1,10}", text, re.ASCII):
        raise UsageProblem(f"unable to parse param '{name}': {text[:60]!r} is no whole number")
    limit = int(text)
    return min(limit, MAX_LIMIT) if limit > 0 else DEFAULT_LIMIT


def _page_size(values: QueryParams, depth: str, paged: bool) -> str:
    """The size of the page that is asked for, empty where none is."""
    size = values.get("query.pagination.pageSize", "")
    token = values.get("query.pagination.pageToken", "")
    if not size and not token:
        return ""
    if not paged:
        raise UsageProblem("query.pagination is for trace summaries only")
    if depth:
        raise UsageProblem("query.pagination and query.searchDepth exclude each other")
    if token:
        raise UsageProblem("query.pagination.pageToken: there are no further pages")
    if not re.fullmatch(r"0{0,9}[1-9]\d{0,8}", size, re.ASCII):
        raise UsageProblem(
            f"malformed parameter query.pagination.pageSize: {size[:60]!r} is no count above 0"
        )
    return size


def _tags(simple: list[str], encoded: list[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for text in simple:
        key, colon, value = text.partition(":")
        if not colon:
            raise UsageProblem(
                f"malformed 'tag' parameter, expecting key:value, received: {text[:80]}"
            )
        tags[key] = value
    for text in encoded:
        try:
            found: Any = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise UsageProblem(
                f"malformed 'tags' parameter, cannot unmarshal JSON: {error}"
            ) from None
        if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
            raise UsageProblem(
                "malformed 'tags' parameter: a JSON object whose values are strings is expected"
            )
        tags.update(found)
    return tags
