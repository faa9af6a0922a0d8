"""The parts of the Jaeger-compatible API that need no Jaeger to compare with (see tests/stack/test_viewer_jaeger.py for the rest)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import QueryParams

from otel_gym.errors import UsageProblem
from otel_gym.tracing.options import SpanOptions
from otel_gym.viewer.index.indexer import Index
from otel_gym.viewer.jaeger.query import duration_ns, time_ns, trace_id_of, v1_query, v3_query
from otel_gym.viewer.jaeger.search import Search
from otel_gym.viewer.jaeger.text import as_text
from otel_gym.viewer.jaeger.traces import Traces
from tests.viewer.captures import append, conversation, write_rollout, write_run
from tests.viewer.server import View

FOREIGN = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1s", 10**9), ("1.5ms", 1_500_000), ("1m30s", 90 * 10**9), ("10us", 10_000), ("3\u00b5s", 3_000), ("", 0), (".5h", 1800 * 10**9)],
)  # fmt: skip
def test_durations_are_gos(text: str, expected: int) -> None:
    """A duration is read as Go's time.ParseDuration reads it."""
    assert duration_ns(text, "minDuration") == expected


@pytest.mark.parametrize("text", ["1", "s", "1 s", "1s ", "-1s", "1y", "1e3s", "\u0661s"])
def test_other_durations_are_refused(text: str) -> None:
    """What is no duration is refused with the parameter's name."""
    with pytest.raises(UsageProblem, match="minDuration"):
        duration_ns(text, "minDuration")


def test_times_and_ids() -> None:
    """RFC 3339 to the nanosecond, in any zone; ids may lack leading zeros."""
    assert time_ns("2026-01-01T00:00:00.000000001Z", "t") == 1767225600 * 10**9 + 1
    assert time_ns("2026-01-01T01:00:00+01:00", "t") == 1767225600 * 10**9
    assert trace_id_of("ABC") == "abc".rjust(32, "0")
    for text in ("", "g", "1" * 33, "../x"):
        with pytest.raises(UsageProblem):
            trace_id_of(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (0.1, "0.1"),
        (1e-7, "1e-7"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (123456.789, "123456.789"),
        (True, "true"),
        (-3, "-3"),
        (["a", "<b>"], '["a","\\u003cb\\u003e"]'),
        ({"b": 1.0, "a": []}, '{"a":[],"b":1}'),
    ],
)
def test_values_are_compared_as_go_writes_them(value: object, text: str) -> None:
    """Numbers, lists and mappings have the text that Jaeger compares tags with."""
    assert as_text(value) == text


def test_limits_are_bounded() -> None:
    """A limit is at most what Jaeger's own page asks for; nonsense gives the default."""
    for text, limit in {"": 100, "5": 5, "0": 100, "-1": 100, "999999": 1500}.items():
        assert v1_query(QueryParams({"service": "s", "limit": text})).limit == limit
    times = {
        "query.startTimeMin": "2026-01-01T00:00:00Z",
        "query.startTimeMax": "2026-01-02T00:00:00Z",
    }
    assert v3_query(QueryParams({**times, "query.searchDepth": "7"})).limit == 7


WINDOW = {
    "query.startTimeMin": "2026-09-21T00:00:00Z",
    "query.startTimeMax": "2026-09-23T00:00:00Z",
}


def test_summaries_say_what_the_whole_traces_say(tmp_path: Path, view: View) -> None:
    """A trace summary has the fields of Jaeger's protocol (api_v3 `TraceSummary`, in the JSON of proto3), counted from the spans of the same search."""
    directory = write_run(tmp_path / "run")
    append(directory, "0-0", conversation("0-0", 3))
    failing = conversation("0-1", 2, start=40.0)
    failing[-1].update(error_category="upstream_error", status_code=503, response=None)
    append(directory, "0-1", failing)
    write_rollout(directory, "0-1", agent="an agent")
    foreign = conversation("0-2", 2, start=80.0)
    for record in foreign:
        record["trace"] = {"trace_id": FOREIGN, "parent_span_id": "b7ad6b7169203331"}
    append(directory, "0-2", foreign)
    viewer = view(directory)
    found = viewer.json("/api/v3/trace-summaries", **WINDOW)["summaries"]
    by_id: dict[str, list[dict[str, Any]]] = {}
    for resource in viewer.json("/api/v3/traces", **WINDOW)["result"]["resourceSpans"]:
        for span in resource["scopeSpans"][0]["spans"]:
            by_id.setdefault(span["traceId"], []).append(span)
    assert [one["traceId"] for one in found] == list(by_id)
    for one in found:
        spans = by_id[one["traceId"]]
        ids = {span["spanId"] for span in spans}
        parents = [span.get("parentSpanId", "") for span in spans]
        roots = [span for span in spans if not span.get("parentSpanId")]
        errors = sum(span.get("status", {}).get("code") == 2 for span in spans)
        assert one == {
            "traceId": one["traceId"],
            "rootServiceName": "otel-gym" if roots else "",
            "rootOperationName": roots[0]["name"] if roots else "",
            "minStartTimeUnixNano": min(span["startTimeUnixNano"] for span in spans),
            "maxEndTimeUnixNano": max(span["endTimeUnixNano"] for span in spans),
            "spanCount": len(spans),
            "errorSpanCount": errors,
            "orphanSpanCount": sum(bool(p) and p not in ids for p in parents),
            "services": [{"name": "otel-gym", "spanCount": len(spans), "errorSpanCount": errors}],
        }
    newest_first = [
        (one["spanCount"], one["errorSpanCount"], one["orphanSpanCount"]) for one in found
    ]
    assert (2, 0, 2) in newest_first
    assert (3, 1, 0) in newest_first
    assert (4, 0, 0) in newest_first


def test_a_search_for_summaries_is_answered_whole_or_refused(run_dir: Path, view: View) -> None:
    """Nothing found is an empty list; a page is a limit; conditions and pages that are not supported are refused and not ignored."""
    viewer = view(run_dir)

    def ask(path: str = "trace-summaries", **query: str) -> httpx.Response:
        return viewer.client.get(
            f"/api/v3/{path}", params={**WINDOW, **{f"query.{k}": v for k, v in query.items()}}
        )

    assert ask(serviceName="another").json() == {"summaries": []}
    assert len(ask().json()["summaries"]) > 2
    assert len(ask(searchDepth="2").json()["summaries"]) == 2
    assert len(ask(**{"pagination.pageSize": "2"}).json()["summaries"]) == 2
    for query in (
        {"filter": '{"op":"eq"}'},
        {"pagination.pageSize": "2", "searchDepth": "2"},
        {"pagination.pageSize": "0"},
        {"pagination.pageSize": "2", "pagination.pageToken": "x"},
    ):
        refused = ask(**query)
        assert refused.status_code == 400
        assert refused.json()["error"]["httpCode"] == 400
    assert ask("traces", **{"pagination.pageSize": "2"}).status_code == 400
    assert viewer.client.get("/api/v3/trace-summaries").status_code == 400
    assert viewer.client.post("/api/v3/trace-summaries", json={}).status_code == 405


def test_spans_in_a_foreign_trace_are_found_there(tmp_path: Path, view: View) -> None:
    """Calls that were recorded as part of a caller's trace are in that trace, of whichever rollout they are, and not in their rollout's."""
    directory = write_run(tmp_path / "run")
    for rollout_id in ("0-0", "0-1"):
        records = conversation(rollout_id, 2)
        records[1]["trace"] = {"trace_id": FOREIGN, "parent_span_id": "b7ad6b7169203331"}
        append(directory, rollout_id, records)
    viewer = view(directory)
    own = viewer.json(f"/api/traces/{viewer.json('/rollout/0-0.json')['rollout']['trace_id']}")
    assert len(own["data"][0]["spans"]) == 2  # one call and the root
    foreign = viewer.json(f"/api/traces/{FOREIGN}")["data"][0]
    assert len(foreign["spans"]) == 2
    assert {span["references"][0]["spanID"] for span in foreign["spans"]} == {"b7ad6b7169203331"}
    found = viewer.json("/api/traces", service="otel-gym", start=0)["data"]
    assert sorted(len(trace["spans"]) for trace in found) == [2, 2, 2]
    assert len({trace["traceID"] for trace in found}) == 3


def test_a_search_that_takes_too_long_says_how_far_it_came(run_dir: Path) -> None:
    """When the time is over, what was found is the answer, marked as not complete."""
    index = Index(run_dir, options=SpanOptions(), keep=False)
    index.refresh()
    ticks = iter(range(0, 1000, 4))
    found = Search(Traces(index), clock=lambda: float(next(ticks))).find(
        v1_query(QueryParams({"service": "otel-gym", "start": "0"}))
    )
    assert not found.complete
    assert 0 < found.looked_at < 5
    assert len(found.traces) == found.looked_at
    index.close()


def test_another_service_has_nothing(run_dir: Path, view: View) -> None:
    """The directory has one service; asked for another, there are no operations and no traces."""
    viewer = view(run_dir)
    assert viewer.json("/api/services/other/operations")["data"] == []
    assert viewer.json("/api/traces", service="other", start=0)["data"] == []
    assert viewer.client.get("/api/traces").status_code == 400
