"""The real Collector with the files of collector_config: nothing is lost, and each option does what it says."""

import re
import subprocess
import time
import urllib.request
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
import yaml

from tests.stack.stored import PATIENCE_SECONDS, stored, wait_until_stored
from tests.stack.traffic import (
    Sent,
    identifier,
    key_value,
    post_spans,
    rollout_spans,
    send_rollouts,
)
from tools.backends.build import BACKENDS
from tools.backends.processes import CONFIGURATION, Collector, Jaeger

pytestmark = pytest.mark.stack

OPTIONS = sorted((CONFIGURATION / "options").glob("*.yaml"))
SCALE = [CONFIGURATION / "scale" / name for name in ("edge.yaml", "gateway.yaml")]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _metric(target: str, name: str, label: str = "") -> int:
    """The sum over the series of a metric on a page of metrics, those with a label."""
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as page:
        text = page.read().decode()
    samples = re.findall(rf"^{name}\{{(.*)\}} (\d+)", text, re.MULTILINE)
    return sum(int(value) for labels, value in samples if label in labels)


def test_every_span_arrives_through_the_collector(collector: Collector, jaeger: Jaeger) -> None:
    """What otel-gym sends to the Collector is what Jaeger holds: each span once, and none else."""
    wait_until_stored(jaeger, send_rollouts(collector.otlp_http, "through", 20, 30))


def test_a_killed_collector_loses_nothing(collector: Collector, jaeger_badger: Jaeger) -> None:
    """Spans accepted while Jaeger is away survive a kill of the Collector and arrive when both are back."""
    away = Collector(collector.folder.parent / "away", jaeger_badger)
    away.start()
    try:
        jaeger_badger.kill()
        sent = send_rollouts(away.otlp_http, "killed", 10, 20)
        away.kill()
        away.start()
        more = send_rollouts(away.otlp_http, "after", 2, 5)
        jaeger_badger.start()
        wait_until_stored(jaeger_badger, sent)
        wait_until_stored(jaeger_badger, more)
    finally:
        away.kill()


def test_a_large_request_passes(collector: Collector, jaeger: Jaeger) -> None:
    """One request of some 20 MiB, which is above every default limit on the way, arrives whole."""
    sent = Sent()
    spans = []
    for index in range(20):
        spans += rollout_spans(f"large-{index}", 20, sent)
    for span in spans:
        span.attributes.append(key_value("gen_ai.output.messages", "y" * 50_000))
    post_spans(collector.otlp_http, spans)
    wait_until_stored(jaeger, sent)


def test_sampling_keeps_whole_rollouts_and_counts_all(
    start_collector: Callable[..., Collector], jaeger: Jaeger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the sampling option a rollout is in Jaeger with all of its spans or not at all; metrics count every call."""
    monkeypatch.setenv("COLLECTOR_SAMPLING_PERCENT", "50")
    collector = start_collector(CONFIGURATION / "options" / "sampling.yaml")
    sent = Sent()
    for index in range(40):
        # Root and calls in requests of their own, as a live run sends them.
        root, *calls = rollout_spans(f"sampled-{index}", 4, sent)
        for part in ([root], calls[:2], calls[2:]):
            post_spans(collector.otlp_http, part)
    kept = 'processor="probabilistic_sampler"'
    passed = "otelcol_processor_outgoing_items_total"
    _until(
        lambda: (
            sum(len(stored(jaeger, trace_id)) for trace_id in sent.spans)
            == _metric(collector.metrics_target, passed, kept)
            > 0
        )
    )
    sizes = [len(stored(jaeger, trace_id)) for trace_id in sent.spans]
    assert set(sizes) == {0, 5}
    assert 8 <= sizes.count(5) <= 32
    collector.stop()
    again = start_collector(CONFIGURATION / "options" / "sampling.yaml")
    for index in range(40):
        post_spans(again.otlp_http, rollout_spans(f"sampled-{index}", 4))
    _until(lambda: _metric(again.rollouts_target, "otel_gym_rollout_calls_total") == 160)
    again.stop()
    assert [len(set(stored(jaeger, trace_id))) for trace_id in sent.spans] == sizes


def test_each_configuration_file_is_valid(otelcol: Path, tmp_path: Path) -> None:
    """The Collector itself finds no mistake in its configuration, alone, with each and all options, and for scale-out."""
    basis, (edge, gateway) = CONFIGURATION / "collector.yaml", SCALE
    variants = [[basis], *([basis, option] for option in OPTIONS), [basis, *OPTIONS]]
    variants += [[edge], [basis, gateway], [basis, gateway, *OPTIONS]]
    for paths in variants:
        files = [f"--config={path}" for path in paths]
        checked = subprocess.run(
            [otelcol, "validate", *files], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert checked.returncode == 0, (files, checked.stderr)


def test_the_build_holds_exactly_the_components_that_the_files_name(otelcol: Path) -> None:
    """No component is built in vain, and none is missing, over the configuration, its options and scale-out."""
    built = yaml.safe_load(
        subprocess.run([otelcol, "components"], capture_output=True, text=True, check=True).stdout
    )
    for kind in ("receivers", "processors", "exporters", "connectors", "extensions"):
        documents = [
            yaml.safe_load(path.read_text())
            for path in (CONFIGURATION / "collector.yaml", *OPTIONS, *SCALE)
        ]
        named = {name.split("/")[0] for document in documents for name in document.get(kind, {})}
        assert {component["name"] for component in built[kind]} == named, kind


def test_the_version_of_the_build_is_that_of_the_image() -> None:
    """The Collector that the tests run is the release whose image the compose file pulls."""
    pinned = dict(
        line.split("=", 1)
        for line in (CONFIGURATION.parent / ".env").read_text().splitlines()
        if "=" in line and not line.startswith("#")
    )
    assert pinned["OTELCOL_TAG"] == BACKENDS["collector"].version
    modules = (BACKENDS["collector"].source / "go.mod").read_text()
    contrib = dict(
        re.findall(r"opentelemetry-collector-contrib/(\S+) v(\S+)$", modules, re.MULTILINE)
    )
    # Of these two, 0.161.0 can't be had as a module; only the scale-out files use them.
    assert contrib.pop("exporter/kafkaexporter") == "0.160.0"
    assert contrib.pop("exporter/loadbalancingexporter") == "0.160.0"
    assert set(contrib.values()) == {pinned["OTELCOL_TAG"]}


def test_span_metric_dimensions_name_no_unbounded_attribute() -> None:
    """Dimensions of the span metrics are attributes with few values: no id of a rollout, call, conversation or trace."""
    document = yaml.safe_load((CONFIGURATION / "collector.yaml").read_text())
    names = [each["name"] for each in document["connectors"]["span_metrics"]["dimensions"]]
    assert names
    assert [name for name in names if re.search(r"\bid\b|index|offset|file", name)] == []


def test_identifiers_of_the_traffic_are_unique() -> None:
    """The helper's spans have distinct ids, so that comparing sets of ids proves something."""
    sent = Sent()
    spans = list(chain.from_iterable(rollout_spans(f"r{index}", 20, sent) for index in range(5)))
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans) == 105
    assert identifier("a", 8) != identifier("b", 8)
