"""The scale-out files: two edges, two gateways, a Kafka broker, and Jaeger's ingester behind it, as real processes.

The broker is a stand-in that speaks Kafka's protocol, and the ingester keeps traces in memory instead of Cassandra, which
can't be had here. Everything else is what runs in production.
"""

import re
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.stack.traffic import Sent, post_spans, rollout_spans
from tools.backends.build import program
from tools.backends.processes import CONFIGURATION, Backend, Collector, Jaeger, free_port

pytestmark = pytest.mark.stack

SCALE = CONFIGURATION / "scale"
PATIENCE_SECONDS = 60.0


class Kafka(Backend):
    """The broker."""

    name = "kafka"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()

    @property
    def command(self) -> list[str]:
        return [str(program("kafka")), str(self.port)]

    @property
    def ready_url(self) -> str:
        raise NotImplementedError

    def _ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Ingester(Jaeger):
    """Jaeger with `jaeger-ingester.yaml`, its store replaced by memory and its query service beside it."""

    def __init__(self, folder: Path, kafka: Kafka) -> None:
        super().__init__(folder)
        self._kafka = kafka
        self._instead = folder / "instead.yaml"
        document = yaml.safe_load((CONFIGURATION / "jaeger" / "memory.yaml").read_text())
        query = document["extensions"]["jaeger_query"]
        del query["storage"]["metrics"]
        memory = {"cassandra": None, "memory": {"max_traces": 10_000}}
        self._instead.write_text(
            yaml.safe_dump(
                {
                    "service": {"extensions": ["jaeger_storage", "jaeger_query", "healthcheckv2"]},
                    "extensions": {
                        "jaeger_storage": {"backends": {"traces_store": memory}},
                        "jaeger_query": query,
                    },
                }
            )
        )

    @property
    def command(self) -> list[str]:
        files = (SCALE / "jaeger-ingester.yaml", self._instead)
        return [str(program("jaeger")), *(f"--config={path}" for path in files)]

    @property
    def environment(self) -> Mapping[str, str]:
        return {**super().environment, "KAFKA_BROKERS": f"[127.0.0.1:{self._kafka.port}]"}


class Gateway(Collector):
    """A Collector with `collector.yaml` and `gateway.yaml`."""

    def __init__(self, folder: Path, unused: Jaeger, kafka: Kafka) -> None:
        super().__init__(folder, unused, SCALE / "gateway.yaml")
        self._kafka = kafka

    @property
    def environment(self) -> Mapping[str, str]:
        return {**super().environment, "KAFKA_BROKERS": f"[127.0.0.1:{self._kafka.port}]"}


class Edge(Collector):
    """A Collector with `edge.yaml`."""

    def __init__(self, folder: Path, unused: Jaeger, gateways: list[Gateway]) -> None:
        super().__init__(folder, unused)
        self._gateways = [gateway.otlp_grpc.removeprefix("http://") for gateway in gateways]
        self._backfill = [gateway.environment["COLLECTOR_BACKFILL_GRPC"] for gateway in gateways]

    @property
    def command(self) -> list[str]:
        return [str(program("otelcol")), f"--config={SCALE / 'edge.yaml'}"]

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            **super().environment,
            "GATEWAYS": f"[{', '.join(self._gateways)}]",
            "GATEWAYS_BACKFILL": f"[{', '.join(self._backfill)}]",
        }


@dataclass
class Tiers:
    """All processes of the scale-out."""

    kafka: Kafka
    ingester: Ingester
    gateways: list[Gateway]
    edges: list[Edge]


@pytest.fixture(scope="module")
def kafka(
    backend_program: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Kafka:
    """The broker, not yet started."""
    for name in ("kafka", "jaeger", "otelcol"):
        backend_program(name)
    return Kafka(tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def tiers(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiers]:
    """Two of each tier."""
    folder = tmp_path_factory.mktemp("scale")
    ingester = Ingester(folder / "ingester", kafka)
    gateways = [Gateway(folder / f"gateway{index}", ingester, kafka) for index in range(2)]
    edges = [Edge(folder / f"edge{index}", ingester, gateways) for index in range(2)]
    parts: list[Backend] = [kafka, ingester, *gateways, *edges]
    try:
        for part in parts:
            part.start()
        yield Tiers(kafka, ingester, gateways, edges)
    finally:
        for part in parts:
            part.kill()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _stored(tiers: Tiers, sent: Sent) -> bool:
    """Whether exactly the sent spans are there; a copy that is equal byte for byte is no second span."""
    for trace_id, ids in sent.spans.items():
        trace = tiers.ingester.trace(trace_id)
        if trace is None or {span["spanID"] for span in trace["spans"]} != ids:
            return False
    return True


def _calls_by_rollout(gateway: Gateway) -> dict[str, int]:
    with urllib.request.urlopen(f"http://{gateway.rollouts_target}/metrics", timeout=10) as page:
        text = page.read().decode()
    calls: dict[str, int] = {}
    pattern = r'^otel_gym_rollout_calls_total\{.*otel_gym_rollout_id="([^"]+)".*\} (\d+)'
    for rollout, count in re.findall(pattern, text, re.MULTILINE):
        calls[rollout] = calls.get(rollout, 0) + int(count)
    return calls


def test_spans_pass_all_tiers_and_a_rollout_stays_on_one_gateway(tiers: Tiers) -> None:
    """Spans of one rollout that come in at both edges meet at one gateway, rollouts use both gateways, and every span
    reaches the store through Kafka."""
    sent = Sent()
    for index in range(20):
        spans = rollout_spans(f"wide-{index}", 8, sent)
        for number, edge in enumerate(tiers.edges):
            post_spans(edge.otlp_http, spans[number::2])
    _until(lambda: _stored(tiers, sent))
    _until(
        lambda: sum(sum(_calls_by_rollout(gateway).values()) for gateway in tiers.gateways) == 160
    )
    one, other = (_calls_by_rollout(gateway) for gateway in tiers.gateways)
    assert one and other
    assert set(one) & set(other) == set()
    assert set({**one, **other}.values()) == {8}


def test_a_backfill_passes_all_tiers_uncounted(tiers: Tiers) -> None:
    """What comes in at an edge's backfill port is stored, and counted by no gateway."""
    sent = Sent()
    post_spans(tiers.edges[0].backfill_http, rollout_spans("wide-past", 5, sent))
    _until(lambda: _stored(tiers, sent))
    assert not any("wide-past" in _calls_by_rollout(gateway) for gateway in tiers.gateways)


def test_a_dead_gateway_loses_nothing(tiers: Tiers) -> None:
    """Spans sent while one gateway is dead arrive once it is back, those of every other rollout at once."""
    tiers.gateways[0].kill()
    sent = Sent()
    for index in range(10):
        post_spans(tiers.edges[index % 2].otlp_http, rollout_spans(f"hole-{index}", 4, sent))
    tiers.edges[0].kill()
    tiers.edges[0].start()
    tiers.gateways[0].start()
    _until(lambda: _stored(tiers, sent))


def test_the_query_and_ingester_files_name_the_same_store() -> None:
    """Ingester and query service are configured for one and the same store."""
    ingester, query = (
        yaml.safe_load((SCALE / f"jaeger-{name}.yaml").read_text())["extensions"]["jaeger_storage"]
        for name in ("ingester", "query")
    )
    assert ingester["backends"] == query["backends"]
