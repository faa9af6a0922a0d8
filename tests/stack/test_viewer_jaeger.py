"""The viewer's Jaeger-compatible API and a real Jaeger, fed by export, are asked the same questions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_gym.cli.main import run as otel_gym
from otel_gym.correlation.trace_ids import trace_id
from otel_gym.tracing.jaeger import JaegerReader
from otel_gym.viewer.options import ViewerOptions
from tests.viewer.captures import EPOCH, append, conversation, write_rollout, write_run
from tests.viewer.server import RunningViewer
from tools.backends.processes import Jaeger

pytestmark = pytest.mark.stack

US = 1_000_000
WINDOW = {"start": int((EPOCH - 3600) * US), "end": int((EPOCH + 3600) * US)}
RFC_WINDOW = {
    "query.start_time_min": "2026-09-21T13:00:00Z",
    "query.start_time_max": "2026-09-21T16:00:00.5Z",
}


@dataclass(frozen=True, slots=True)
class Pair:
    """The same run behind both APIs."""

    service: str
    run_id: str
    ours: httpx.Client
    theirs: httpx.Client

    def both(self, path: str, **query: Any) -> tuple[httpx.Response, httpx.Response]:
        """Both answers, which must have the same status."""
        ours = self.ours.get(path, params=query or None)
        theirs = self.theirs.get(path, params=query or None)
        assert ours.status_code == theirs.status_code, (path, query, ours.text, theirs.text)
        return ours, theirs

    def trace(self, rollout_id: str) -> str:
        """The trace of a rollout."""
        return trace_id(self.run_id, rollout_id)


@pytest.fixture(scope="module")
def pair(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A run of every kind of span, in files and exported to Jaeger."""
    directory = tmp_path_factory.mktemp("jaeger-pair") / "run"
    run_id, service = f"pair-{uuid.uuid4().hex}", f"viewer-pair-{uuid.uuid4().hex[:8]}"
    _write(directory, run_id, service)
    assert otel_gym(["export", str(directory), "--endpoint", jaeger.otlp_http]) == 0
    viewer = RunningViewer(ViewerOptions(directory))
    theirs = httpx.Client(base_url=jaeger.query_url, timeout=20)
    yield Pair(service, run_id, viewer.client, theirs)
    theirs.close()
    viewer.stop()


def _write(directory: Path, run_id: str, service: str) -> None:
    write_run(directory, run_id)
    run = json.loads((directory / "run.json").read_text())
    run["resource"]["service.name"] = service
    (directory / "run.json").write_text(json.dumps(run))
    append(directory, "0-0", conversation("0-0", 5))
    write_rollout(directory, "0-0", reward=1.0, model="smol")
    failing = conversation("1-0", 2, start=40.0)
    failing[-1].update(error_category="upstream_error", status_code=503, response=None)
    append(directory, "1-0", failing)
    write_rollout(
        directory,
        "1-0",
        agent="other_agent",
        error="it <broke> & fell",
        error_type="Broken",
        completed_at=EPOCH + 60,
    )
    linked = conversation("1-0-a1", 3, start=90.0)
    linked[0]["trace"] = {
        "inbound": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"},
    }  # fmt: skip
    linked[1]["sampling"]["overridden"] = ["temperature"]
    linked[1]["sampling"]["requested"] = {"temperature": 1e-7}
    linked[2]["request"]["stop"] = ["<end>", "&"]
    linked[2]["response"]["choices"][0]["finish_reason"] = "length"
    append(directory, "1-0-a1", linked)
    odd = conversation("2-0", 1, start=200.0)
    odd[0]["request"]["model"] = "größe 模型"
    odd[0]["request"]["seed"] = 2**60
    append(directory, "2-0", odd)


def _v1_traces(answer: httpx.Response) -> dict[str, Any]:
    """The traces of a v1 answer by id, in an order that does not depend on chance."""
    found = answer.json()
    assert found["errors"] is None
    traces = {}
    for trace in found["data"] or []:
        for span in trace["spans"]:
            # Jaeger may name any number of processes; which one a span has is what counts.
            span["process"] = trace["processes"][span.pop("processID")]
        trace.pop("processes")
        trace["spans"].sort(key=lambda span: span["spanID"])
        traces[trace["traceID"]] = trace
    return traces


def test_services_and_operations_are_the_same(pair: Pair) -> None:
    """Both know the run's service and the same operations with the same kinds, in both versions of the API."""
    ours, theirs = pair.both("/api/services")
    assert ours.json()["data"] == [pair.service]
    assert pair.service in theirs.json()["data"]
    assert set(ours.json()) == set(theirs.json())
    ours, theirs = pair.both(f"/api/services/{pair.service}/operations")
    assert sorted(ours.json()["data"]) == sorted(theirs.json()["data"])
    assert "invoke_agent other_agent" in ours.json()["data"]
    assert ours.json()["total"] == theirs.json()["total"]
    for kind in ({}, {"spanKind": "client"}, {"spanKind": "internal"}, {"spanKind": "server"}):
        ours, theirs = pair.both("/api/operations", service=pair.service, **kind)

        def named(answer: httpx.Response) -> list[tuple[str, str]]:
            return sorted((one["name"], one["spanKind"]) for one in answer.json()["data"])

        assert named(ours) == named(theirs)
    ours, theirs = pair.both("/api/v3/operations", service=pair.service)
    key = lambda one: (one["name"], one["spanKind"])  # noqa: E731 - once, for two lines
    assert sorted(ours.json()["operations"], key=key) == sorted(
        theirs.json()["operations"], key=key
    )
    ours, theirs = pair.both("/api/v3/services")
    assert ours.json()["services"] == [pair.service]
    assert pair.service in theirs.json()["services"]
    ours, theirs = pair.both("/api/operations")
    assert ours.json()["errors"] == theirs.json()["errors"]


@pytest.mark.parametrize("rollout_id", ["0-0", "1-0", "1-0-a1", "2-0"])
def test_a_trace_is_the_same_in_v1(pair: Pair, rollout_id: str) -> None:
    """Every span, tag, reference, log and process of a trace is equal, in type and value."""
    ours, theirs = pair.both(f"/api/traces/{pair.trace(rollout_id)}")
    assert _v1_traces(ours) == _v1_traces(theirs)
    assert set(ours.json()) == set(theirs.json())


@pytest.mark.parametrize("rollout_id", ["0-0", "1-0", "1-0-a1", "2-0"])
def test_a_trace_is_the_same_in_v3(pair: Pair, rollout_id: str) -> None:
    """The OTLP JSON of a trace has the same resource, scope and spans."""
    ours, theirs = pair.both(f"/api/v3/traces/{pair.trace(rollout_id)}")
    assert _v3_spans(ours) == _v3_spans(theirs)


def _v3_spans(answer: httpx.Response) -> dict[str, Any]:
    """The spans of a v3 answer by id, with resource and scope, sorted and without empty values."""
    found = {}
    for resource_spans in answer.json()["result"]["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                around = {
                    "resource": resource_spans["resource"],
                    "scope": scope_spans["scope"],
                }
                # Jaeger's memory store loses the schema URL; ours stands where an export puts it.
                found[span["spanId"]] = _plain({**span, **around})
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        plain = {key: _plain(inner) for key, inner in value.items()}
        return {key: inner for key, inner in plain.items() if inner not in ("", {}, [], None)}
    if isinstance(value, list):
        if value and all(isinstance(item, dict) and "key" in item for item in value):
            return sorted((_plain(item) for item in value), key=lambda item: str(item["key"]))
        return [_plain(item) for item in value]
    return value


@pytest.mark.parametrize(
    ("query", "rollouts"),
    [
        ({}, {"0-0", "1-0", "1-0-a1", "2-0"}),
        ({"operation": "invoke_agent other_agent"}, {"1-0"}),
        ({"operation": "invoke_agent"}, {"1-0-a1", "2-0"}),
        ({"operation": "chat smol"}, {"0-0", "1-0", "1-0-a1"}),
        ({"operation": "nothing"}, set()),
        ({"tags": '{"otel_gym.rollout.id":"0-0"}'}, {"0-0"}),
        ({"tag": "otel_gym.rollout.id:1-0-a1"}, {"1-0-a1"}),
        ({"tags": '{"otel_gym.task.index":"1"}'}, {"1-0", "1-0-a1"}),
        ({"tags": '{"error.type":"Broken"}'}, {"1-0"}),
        ({"tags": '{"error.type":"upstream_error"}'}, {"1-0"}),
        ({"tags": '{"host.name":"testhost"}'}, {"0-0", "1-0", "1-0-a1", "2-0"}),
        ({"tags": '{"otel_gym.reward":"1"}'}, {"0-0"}),
        ({"tags": '{"gen_ai.evaluation.name":"reward"}'}, {"0-0"}),
        ({"tags": '{"gen_ai.request.temperature":"0.7"}'}, {"0-0", "1-0", "1-0-a1", "2-0"}),
        ({"tags": '{"gen_ai.request.temperature":"1e-07"}'}, None),
        ({"tags": '{"otel_gym.sampling.requested.temperature":"1e-7"}'}, None),
        ({"tags": '{"gen_ai.request.stop_sequences":"[\\"\\\\u003cend\\\\u003e\\",\\"\\\\u0026\\"]"}'}, None),
        ({"tags": '{"gen_ai.response.finish_reasons":"[\\"length\\"]"}'}, {"1-0-a1"}),
        ({"tags": '{"gen_ai.request.stream":"true"}'}, None),
        ({"tags": '{"otel_gym.rollout.id":"0-0","error.type":"Broken"}'}, set()),
        ({"tags": '{"gen_ai.request.model":"größe 模型"}'}, {"2-0"}),
        ({"minDuration": "2s"}, None),
        ({"minDuration": "30s"}, {"0-0", "1-0"}),
        ({"maxDuration": "900ms", "operation": "chat smol"}, {"0-0", "1-0", "1-0-a1"}),
        ({"minDuration": "801ms", "maxDuration": "0.9s", "operation": "chat smol"}, set()),
        ({"start": int((EPOCH + 39.5) * US), "end": int((EPOCH + 91) * US)}, {"1-0", "1-0-a1"}),
        ({"start": int((EPOCH + 250) * US)}, set()),
    ],
)  # fmt: skip
def test_searches_find_the_same_traces(
    pair: Pair, query: dict[str, Any], rollouts: set[str] | None
) -> None:
    """The same search finds the same traces, whole and equal: by operation, tags of spans, resource and events, time, duration."""
    given = {"service": pair.service, **WINDOW, **query}
    ours, theirs = pair.both("/api/traces", **given)
    assert _v1_traces(ours) == _v1_traces(theirs)
    if rollouts is not None:
        assert set(_v1_traces(ours)) == {pair.trace(name) for name in rollouts}


def test_a_search_for_errors_finds_them(pair: Pair) -> None:
    """`error=true` finds traces with a failed span and `error=false` the others' spans, as Jaeger documents; its memory store of 2.13 does not."""
    for value, rollouts in {"true": {"1-0"}, "false": {"0-0", "1-0", "1-0-a1", "2-0"}}.items():
        query = {"service": pair.service, "tags": f'{{"error":"{value}"}}', **WINDOW}
        found = pair.ours.get("/api/traces", params=query).json()["data"]
        assert {trace["traceID"] for trace in found} == {pair.trace(name) for name in rollouts}


def test_v3_searches_find_the_same_traces(pair: Pair) -> None:
    """The same over v3 in Jaeger 2.13's spelling; no trace is 404 in both; camel case and attributes work as from 2.19 on."""
    base = {"query.service_name": pair.service, "query.num_traces": "20", **RFC_WINDOW}
    for more in ({}, {"query.operation_name": "chat smol"}, {"query.duration_min": "30s"}):
        ours, theirs = pair.both("/api/v3/traces", **base, **more)
        assert _v3_spans(ours) == _v3_spans(theirs)
    ours, theirs = pair.both("/api/v3/traces", **base, **{"query.operation_name": "nothing"})
    assert ours.status_code == 404
    assert ours.json() == theirs.json()
    camel = {
        "query.serviceName": pair.service,
        "query.startTimeMin": RFC_WINDOW["query.start_time_min"],
        "query.startTimeMax": RFC_WINDOW["query.start_time_max"],
        "query.searchDepth": "20",
        "query.attributes": '{"otel_gym.rollout.id":"1-0"}',
    }
    found = _v3_spans(pair.ours.get("/api/v3/traces", params=camel))
    assert {span["traceId"] for span in found.values()} == {pair.trace("1-0")}


def test_traces_by_id_with_one_missing(pair: Pair) -> None:
    """Asked for several ids, both give those that there are and name the one that there is not."""
    missing = uuid.uuid4().hex
    ids = [pair.trace("0-0"), missing, pair.trace("2-0")]
    ours, theirs = pair.both("/api/traces", traceID=ids)
    assert {t["traceID"] for t in ours.json()["data"]} == {
        t["traceID"] for t in theirs.json()["data"]
    }
    assert ours.json()["errors"] == theirs.json()["errors"]


def test_limit_counts_traces(pair: Pair) -> None:
    """A limit gives so many traces, the newest first."""
    ours, theirs = pair.both("/api/traces", service=pair.service, limit=2, **WINDOW)
    assert len(ours.json()["data"]) == len(theirs.json()["data"]) == 2
    assert [t["traceID"] for t in ours.json()["data"]] == [pair.trace("2-0"), pair.trace("1-0-a1")]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/api/traces", {}),
        ("/api/traces", {"service": "s", "start": "x"}),
        ("/api/traces", {"service": "s", "limit": "x"}),
        ("/api/traces", {"service": "s", "tags": "x"}),
        ("/api/traces", {"service": "s", "tags": '{"a":1}'}),
        ("/api/traces", {"service": "s", "tag": "x"}),
        ("/api/traces", {"service": "s", "minDuration": "x"}),
        ("/api/traces", {"service": "s", "minDuration": "5"}),
        ("/api/traces", {"service": "s", "minDuration": "2s", "maxDuration": "1s"}),
        ("/api/traces", {"traceID": "xyz"}),
        ("/api/traces/not-an-id", {}),
        ("/api/traces/" + "1" * 33, {}),
        ("/api/traces/abcd", {}),
        ("/api/v3/traces/not-an-id", {}),
        ("/api/v3/traces", {"query.service_name": "s"}),
        ("/api/v3/traces", {"query.service_name": "s", **RFC_WINDOW, "query.start_time_min": "yesterday"}),
        ("/api/v3/traces", {"query.service_name": "s", **RFC_WINDOW, "query.num_traces": "x"}),
        ("/api/v3/traces", {"query.service_name": "s", **RFC_WINDOW, "query.num_traces": "5", "query.duration_max": "1"}),
        ("/api/dependencies", {"endTs": "x"}),
    ],
)  # fmt: skip
def test_requests_that_make_no_sense_are_refused_alike(
    pair: Pair, path: str, query: dict[str, Any]
) -> None:
    """What Jaeger refuses is refused, with the same status and the same shape of error."""
    ours, theirs = pair.both(path, **query)
    assert ours.status_code in (400, 404)
    assert set(ours.json()) == set(theirs.json())
    error, other = (a.json().get("errors") or [a.json()["error"]] for a in (ours, theirs))
    assert set(error[0]) == set(other[0])


def test_dependencies_count_the_same_calls(pair: Pair) -> None:
    """Calls between services of the time asked for: the run's service calls itself, once a model call."""
    query = {"endTs": int((EPOCH + 3600) * 1000), "lookback": 7200 * 1000, "service": pair.service}
    ours, theirs = pair.both("/api/dependencies", **query)
    assert ours.json()["data"] == theirs.json()["data"]
    assert ours.json()["data"][0]["callCount"] == 11
    ours, theirs = pair.both(
        "/api/dependencies", endTs=int(EPOCH * 1000), lookback=1000, service=pair.service
    )
    assert ours.json()["data"] == theirs.json()["data"] == []


@pytest.mark.parametrize("api", ["v1", "v3"])
def test_our_own_reader_of_jaeger_sees_no_difference(pair: Pair, api: str) -> None:
    """What `otel-gym verify` reads back from a Jaeger it also reads back from the viewer."""

    def spans(client: httpx.Client) -> list[Any]:
        with JaegerReader(str(client.base_url), api=api) as reader:
            return sorted(reader.spans(pair.trace("1-0-a1")), key=lambda span: span.span_id)

    found = spans(pair.ours)
    assert len(found) == 4
    assert found == spans(pair.theirs)
