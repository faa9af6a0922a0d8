"""The stack's files and the package use the same names for attributes and metrics."""

import json
import re
from pathlib import Path

import pytest
import yaml

from dashboards.files import boards
from otel_gym.counters import COUNTERS
from otel_gym.tracing.metrics import GAUGES, HISTOGRAMS
from otel_gym.tracing.semconv import COMMON, CONVENTIONS, OWN

CONFIGURATION = Path(__file__).resolve().parents[2] / "collector_config"
UNITS = {"s": "seconds", "ms": "milliseconds", "By": "bytes"}
BUCKET_SUFFIXES = ("_bucket", "_sum", "_count")
SPAN_METRICS = {
    "traces_span_metrics_calls_total",
    *(f"traces_span_metrics_duration_milliseconds{suffix}" for suffix in BUCKET_SUFFIXES),
}


def _prometheus_name(name: str, unit: str, kind: str) -> set[str]:
    """A metric's names in Prometheus, by the rules of the Collector's exporter."""
    base = re.sub(r"\W", "_", name)
    suffix = UNITS.get(unit)
    if suffix and not base.endswith(suffix):
        base = f"{base}_{suffix}"
    if kind == "counter":
        return {f"{base}_total"}
    return {base + part for part in BUCKET_SUFFIXES} if kind == "histogram" else {base}


@pytest.fixture(scope="module")
def known_metrics() -> set[str]:
    """Every metric of ours as Prometheus names it: the package's, and those that the Collector makes."""
    known = set(SPAN_METRICS)
    for name in COUNTERS:
        known |= _prometheus_name(f"otel_gym.{name}", "", "counter")
    for name, (unit, _) in GAUGES.items():
        known |= _prometheus_name(name, unit, "gauge")
    for name, (unit, _, _) in HISTOGRAMS.items():
        known |= _prometheus_name(name, unit, "histogram")
    for name, instrument in CONVENTIONS["genai-0.1"].metrics.items():
        known |= _prometheus_name(name, instrument.unit, instrument.kind)
    collector = yaml.safe_load((CONFIGURATION / "collector.yaml").read_text())
    for metric in collector["connectors"]["signal_to_metrics"]["spans"]:
        known |= _prometheus_name(metric["name"], metric["unit"], "counter")
    return known


def _metrics_in(expression: str) -> set[str]:
    without_labels = re.sub(r"\{[^}]*\}|by \([^)]*\)|\"[^\"]*\"", "", expression)
    return set(re.findall(r"\b((?:otel_gym|gen_ai|traces)_\w+)(?!\w|:)", without_labels))


def test_each_metric_of_the_dashboards_and_rules_exists(known_metrics: set[str]) -> None:
    """Every metric of ours in a panel, variable, rule or alert is one that the package or the Collector makes."""
    expressions = [
        target["expr"]
        for board in boards().values()
        for panel in board["panels"]
        for target in panel["targets"]
        if "expr" in target
    ]
    expressions += [
        variable["query"]["query"].split(",")[0].removeprefix("label_values(")
        for board in boards().values()
        for variable in board["templating"]["list"]
        if variable["type"] == "query"
    ]
    rules = yaml.safe_load((CONFIGURATION / "prometheus" / "rules" / "otel_gym.yml").read_text())
    expressions += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    used = {name for expression in expressions for name in _metrics_in(expression)}
    assert len(used) > 30
    assert used - known_metrics == set()


def test_each_attribute_of_the_configuration_exists() -> None:
    """Every span attribute that the Collector, Jaeger's UI or a search names stands in the convention tables."""
    texts = [
        path.read_text()
        for path in (CONFIGURATION / "collector.yaml", CONFIGURATION / "jaeger" / "ui.json")
    ]
    texts += [json.dumps(board) for board in boards().values()]
    metrics = yaml.safe_load(texts[0])["connectors"]["signal_to_metrics"]["spans"]
    made_here = {metric["name"] for metric in metrics}
    named = {
        name
        for text in texts
        for name in re.findall(r"\b((?:otel_gym|gen_ai)\.[a-z_.]*[a-z_])", text)
    } - made_here
    known = {*COMMON, *OWN, *(name for each in CONVENTIONS.values() for name in each.attributes)}
    assert len(named) >= 10
    assert named - known == set()
