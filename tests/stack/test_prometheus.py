"""What Prometheus holds after traffic through the real stack: every query of every dashboard and alert, and the totals."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.files import boards
from tests.stack.measured import Measured
from tests.stack.traffic import Sent, post_spans, rollout_spans
from tools.backends.processes import get_json
from tools.stack import Stack

pytestmark = pytest.mark.stack

RULES = Path(__file__).resolve().parents[2] / "collector_config" / "prometheus" / "rules"
PATIENCE_SECONDS = 90.0
OURS = 'gen_ai_request_model=~"test-.*"'
"""This file's traffic: the stack is shared with the demo's test."""


@dataclass
class Fed:
    """The stack after two waves of traffic, and what was sent."""

    stack: Stack
    sent: Sent
    token_totals: dict[str, int]
    backfilled_trace: str


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.25)


def _value(stack: Stack, expression: str) -> float:
    found = stack.prometheus.query(expression)
    return float(found[0]["value"][1]) if found else 0.0


@pytest.fixture(scope="module")
def fed(whole_stack: Stack) -> Iterator[Fed]:
    """Two waves, so that rates over time have something to tell."""
    sent = Sent()
    collector = whole_stack.collector
    measured = Measured(collector.otlp_http)
    past = rollout_spans("past", 9)
    post_spans(collector.backfill_http, past)
    calls = f"sum(traces_span_metrics_calls_total{{{OURS}}})"
    tokens = f"sum(gen_ai_client_inference_usage_input_tokens_total{{{OURS}}})"
    for wave in range(2):
        before = sent.calls
        for index in range(4):
            post_spans(collector.otlp_http, rollout_spans(f"wave{wave}-{index}", 15, sent))
        measured.calls(sent.calls - before, sent)
        measured.flush()
        _until(
            lambda: (
                _value(whole_stack, calls) == sent.calls
                and _value(whole_stack, tokens) == measured.totals["input_tokens"]
            ),
            f"Prometheus has {_value(whole_stack, calls)} of {sent.calls} calls, "
            f"{_value(whole_stack, tokens)} of {measured.totals['input_tokens']} tokens",
        )
    yield Fed(whole_stack, sent, dict(measured.totals), past[0].trace_id.hex())
    measured.close()


def _panel_queries() -> list[tuple[str, str]]:
    return [
        (f"{name}: {panel['title']} {target['refId']}", target["expr"])
        for name, board in boards().items()
        for panel in board["panels"]
        for target in panel["targets"]
        if "expr" in target
    ]


def _alert_operands() -> list[tuple[str, str]]:
    rules = yaml.safe_load((RULES / "otel_gym.yml").read_text())
    operands = []
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        if "record" in rule:
            operands.append((rule["record"], rule["expr"]))
            continue
        left, _, right = re.split(r" ([<>]) ", rule["expr"], maxsplit=1)
        operands.append((rule["alert"], left))
        if not re.fullmatch(r"[\d.]+", right):
            operands.append((f"{rule['alert']} (compared with)", right.partition("* ")[2]))
    return operands


def _filled_in(expression: str, rollout: str) -> str:
    for variable, value in {
        "$__rate_interval": "1m",
        "$__range": "15m",
        "$model": ".*",
        "$server": ".*",
        "$rollout": rollout,
        "$trace": ".*",
    }.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


@pytest.mark.parametrize(
    "expression", [e for _, e in _panel_queries()], ids=[n for n, _ in _panel_queries()]
)
def test_each_panel_shows_data(fed: Fed, expression: str) -> None:
    """Every PromQL expression of every panel gives at least one number after traffic."""
    query = _filled_in(expression, fed.sent.rollouts[-1])
    _until(
        lambda: any(
            series["value"][1] not in ("NaN", "+Inf", "-Inf")
            for series in fed.stack.prometheus.query(query)
        ),
        query,
    )


@pytest.mark.parametrize(
    "expression", [e for _, e in _alert_operands()], ids=[n for n, _ in _alert_operands()]
)
def test_each_rule_and_alert_has_data(fed: Fed, expression: str) -> None:
    """Every recording rule and both sides of every alert's comparison give data, so that no alert is blind."""
    _until(lambda: bool(fed.stack.prometheus.query(expression)), expression)


def test_each_variable_offers_values(fed: Fed) -> None:
    """The values of every dashboard variable that asks Prometheus are there."""
    asked = 0
    for board in boards().values():
        for variable in board["templating"]["list"]:
            if variable["type"] != "query":
                continue
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert found is not None
            metric, label = _filled_in(found[1], ""), found[2]
            values = get_json(
                f"{fed.stack.prometheus.url}/api/v1/label/{label}/values", **{"match[]": metric}
            )["data"]
            assert [value for value in values if value], variable["name"]
            asked += 1
    assert asked == 3


def test_each_jaeger_query_of_the_dashboards_answers(fed: Fed) -> None:
    """Searches and trace look-ups, asked as Grafana's Jaeger data source asks them, find the rollouts."""
    rollout = fed.sent.rollouts[-1]
    trace = fed.stack.jaeger.traces(tags=json.dumps({"otel_gym.rollout.id": rollout}))[0]["traceID"]
    asked = 0
    for board in boards().values():
        for target in (t for p in board["panels"] for t in p["targets"] if "expr" not in t):
            asked += 1
            if target.get("queryType") == "search":
                values = {"$rollout": rollout, "$slower_than": "10ms"}
                pairs = (pair.split("=", 1) for pair in target["tags"].split())
                tags = {key: values.get(value, value) for key, value in pairs}
                query = {
                    "tags": json.dumps(tags),
                    "limit": str(target["limit"]),
                    "minDuration": values.get(target["minDuration"], target["minDuration"]),
                }
                found = fed.stack.jaeger.traces(
                    target["service"], **{key: value for key, value in query.items() if value}
                )
                assert trace in {each["traceID"] for each in found}, target
            else:
                assert target["query"] == "$trace"
                assert fed.stack.jaeger.trace(trace) is not None
    assert asked == 3


@pytest.mark.parametrize(
    "histogram",
    [
        "traces_span_metrics_duration_milliseconds_bucket",
        "gen_ai_client_inference_time_to_first_chunk_seconds_bucket",
        "gen_ai_client_inference_duration_seconds_bucket",
    ],
)
def test_exemplars_lead_to_traces(fed: Fed, histogram: str) -> None:
    """Each exemplar's trace id is that of a trace in Jaeger, which holds the exemplar's span."""
    exemplars = fed.stack.prometheus.exemplars(histogram)
    assert exemplars
    for labels in (exemplar["labels"] for exemplar in exemplars[:20]):
        trace = fed.stack.jaeger.trace(labels["trace_id"])
        assert trace is not None
        assert labels["span_id"] in {span["spanID"] for span in trace["spans"]}


def test_totals_equal_what_was_sent(fed: Fed) -> None:
    """Calls, failures, cut streams and every kind of token are exactly what was sent; a backfill counts nothing."""
    sent = fed.sent

    def calls(more: str = "") -> float:
        return _value(fed.stack, f"sum(traces_span_metrics_calls_total{{{OURS}{more}}})")

    assert calls() == sent.calls
    assert calls(',status_code="STATUS_CODE_ERROR"') == sent.failed
    assert calls(',otel_gym_stream_terminal="none"') == sent.streams_cut
    for name, total in fed.token_totals.items():
        metric = f"gen_ai_client_inference_usage_{name.replace('.', '_')}_total"
        assert _value(fed.stack, f"sum({metric}{{{OURS}}})") == total, metric
    for name, total in {
        "calls": sent.calls,
        "input_tokens": sent.input_tokens,
        "output_tokens": sent.output_tokens,
        "cached_tokens": sent.cached_tokens,
    }.items():
        assert _value(fed.stack, f"sum(otel_gym_rollout_{name}_total{{{OURS}}})") == total, name


def test_a_backfill_is_stored_but_not_counted(fed: Fed) -> None:
    """Spans that came through the backfill port are in Jaeger, and no series knows their rollout."""
    trace = fed.stack.jaeger.trace(fed.backfilled_trace)
    assert trace is not None
    assert len(trace["spans"]) == 10
    assert (
        fed.stack.prometheus.query('otel_gym_rollout_calls_total{otel_gym_rollout_id="past"}') == []
    )


def test_a_rollout_is_told_apart_from_its_namesake_of_another_run(fed: Fed) -> None:
    """Two runs that have a rollout of one id: chosen by its trace, as the dashboards' links do it, each has its own
    figures and is the only one to choose; and no span in the store has the label as an attribute."""
    traces = {}
    for run, calls in (("one run", 3), ("another run", 5)):
        spans = rollout_spans(f"{run}: 0-0", calls)
        for span in spans:
            for attribute in span.attributes:
                if attribute.key == "otel_gym.rollout.id":
                    attribute.value.string_value = "namesake"
        post_spans(fed.stack.collector.otlp_http, spans)
        traces[spans[0].trace_id.hex()] = calls
    panel = next(p for p in boards()["one_rollout"]["panels"] if p["type"] == "stat")
    assert panel["title"] == "Calls"
    (choice,) = (
        variable["query"]["query"]
        for variable in boards()["one_rollout"]["templating"]["list"]
        if variable["name"] == "rollout"
    )
    series, label = choice.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
    for trace, calls in traces.items():
        query = panel["targets"][0]["expr"].replace("$trace", trace).replace("$rollout", "namesake")
        query = query.replace("$__range", "15m")
        _until(lambda query=query, calls=calls: _value(fed.stack, query) == calls, query)
        names = get_json(
            f"{fed.stack.prometheus.url}/api/v1/label/{label}/values",
            **{"match[]": series.replace("$trace", trace)},
        )["data"]
        assert names == ["namesake"]
        stored = fed.stack.jaeger.trace(trace)
        assert stored is not None
        keys = {tag["key"] for span in stored["spans"] for tag in span["tags"]}
        assert "otel_gym.rollout.id" in keys
        assert "trace_id" not in keys


def test_rollout_ids_stay_in_their_own_series(fed: Fed) -> None:
    """No series but the short-lived ones has a rollout, trace or call id as a label."""
    names = get_json(
        f"{fed.stack.prometheus.url}/api/v1/labels",
        **{"match[]": '{job=~".+",__name__!~"otel_gym_rollout_.*"}'},
    )["data"]
    assert [name for name in names if re.search(r"rollout|trace_id|span_id|call_id", name)] == []


def test_jaegers_own_monitor_reads_the_span_metrics(fed: Fed) -> None:
    """Service performance monitoring answers for CLIENT spans from the Collector's metrics in Prometheus."""
    answer: dict[str, Any] = get_json(
        f"{fed.stack.jaeger.query_url}/api/metrics/calls",
        service="otel-gym",
        spanKind="client",
        ratePer="60000",
        step="5000",
        lookback="300000",
        endTs=str(int(time.time() * 1000)),
    )
    points = [point for metric in answer["metrics"] for point in metric["metricPoints"]]
    assert any(point["gaugeValue"]["doubleValue"] not in (0, "NaN") for point in points)


def test_prometheus_takes_its_configuration_and_rules(promtool: Path) -> None:
    """`promtool` finds no mistake in prometheus.yml, its target files and the rules."""
    checked = subprocess.run(
        [promtool, "check", "config", RULES.parent / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "rules found" in checked.stdout


def test_each_alert_fires_on_its_fault_only(promtool: Path) -> None:
    """By `promtool test rules`: all alerts are silent while all is well, and each fires on its own fault."""
    alerts = Path(__file__).with_name("alerts.yml")
    tested = subprocess.run(
        [promtool, "test", "rules", alerts], capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    rules = yaml.safe_load((RULES / "otel_gym.yml").read_text())
    names = {
        rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule
    }
    assert {name for name in names if alerts.read_text().count(name) >= 2} == names
