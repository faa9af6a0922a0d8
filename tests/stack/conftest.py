"""The real backends as fixtures: Jaeger, a Collector in front of it, and Prometheus.

The programs are built from their Go modules before the first test that asks for one, outside of any test's time limit
(`make backends` does it beforehand). Where one can't be had, its tests skip with the reason in one line; with
``CI=true`` that is a failure.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # for `tools`, `dashboards` and `tests`

from tools.backends.build import BackendUnavailable, program  # noqa: E402 (the path comes first)
from tools.backends.processes import Collector, Jaeger, Prometheus  # noqa: E402
from tools.stack import Stack  # noqa: E402

PROGRAMS = {
    "jaeger": ("jaeger",),
    "jaeger_badger": ("jaeger",),
    "collector": ("jaeger", "otelcol"),
    "prometheus": ("jaeger", "otelcol", "prometheus"),
    "whole_stack": ("jaeger", "otelcol", "prometheus"),
    "kafka": ("kafka", "jaeger", "otelcol"),
    "promtool": ("promtool",),
    "schema_checker": ("dashboards",),
    "otelcol": ("otelcol",),
}


def _programs_for(item: pytest.Item) -> set[str]:
    """The programs that a test will ask for; the main three where its fixtures do not say which."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if "backend_program" not in fixtures:
        return set()
    known = fixtures & PROGRAMS.keys()
    return {name for fixture in known or {"whole_stack"} for name in PROGRAMS[fixture]}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the collected tests need, so that no single test has to wait for a compiler."""
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    for needed in sorted({name for item in session.items for name in _programs_for(item)}):
        with capture.global_and_fixture_disabled():
            try:
                program(needed)
            except BackendUnavailable:
                continue  # the fixture gives the reason


@pytest.fixture(scope="session")
def backend_program() -> Callable[[str], Path]:
    """The path of a built program by its name; skips, or fails in CI, where it can't be had."""

    def find(name: str) -> Path:
        try:
            return program(name)
        except BackendUnavailable as reason:
            if os.environ.get("CI") == "true":
                pytest.fail(str(reason), pytrace=False)
            pytest.skip(str(reason))

    return find


@pytest.fixture(scope="session")
def jaeger(
    backend_program: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Jaeger]:
    """A real Jaeger with its traces in memory, shared by the session: use trace ids of your own."""
    backend_program("jaeger")
    backend = Jaeger(tmp_path_factory.mktemp("jaeger"))
    backend.start()
    yield backend
    backend.stop()


@pytest.fixture
def jaeger_badger(backend_program: Callable[[str], Path], tmp_path: Path) -> Iterator[Jaeger]:
    """A real Jaeger of the test's own, whose traces are files and survive ``stop`` and ``start``."""
    backend_program("jaeger")
    backend = Jaeger(tmp_path / "jaeger", store="badger")
    backend.start()
    yield backend
    backend.kill()


@pytest.fixture
def collector(
    backend_program: Callable[[str], Path], jaeger: Jaeger, tmp_path: Path
) -> Iterator[Collector]:
    """A real Collector of the test's own, which sends to the session's ``jaeger``."""
    backend_program("otelcol")
    backend = Collector(tmp_path / "collector", jaeger)
    backend.start()
    yield backend
    backend.stop()


@pytest.fixture
def start_collector(
    backend_program: Callable[[str], Path], jaeger: Jaeger, tmp_path: Path
) -> Iterator[Callable[..., Collector]]:
    """Start a Collector with further configuration files."""
    backend_program("otelcol")
    started: list[Collector] = []

    def start(*options: Path) -> Collector:
        collector = Collector(tmp_path / f"collector{len(started)}", jaeger, *options)
        started.append(collector)
        collector.start()
        return collector

    yield start
    for collector in started:
        collector.kill()


@pytest.fixture
def prometheus(
    backend_program: Callable[[str], Path], jaeger: Jaeger, collector: Collector, tmp_path: Path
) -> Iterator[Prometheus]:
    """A real Prometheus of the test's own, which scrapes ``collector`` and ``jaeger``."""
    backend_program("prometheus")
    backend = Prometheus(tmp_path / "prometheus", collector, jaeger)
    backend.start()
    yield backend
    backend.stop()


@pytest.fixture(scope="session")
def whole_stack(
    backend_program: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """All three together, as `make stack` starts them, shared by the session."""
    for name in ("jaeger", "otelcol", "prometheus"):
        backend_program(name)
    stack = Stack(tmp_path_factory.mktemp("stack"))
    stack.start()
    yield stack
    stack.kill()


@pytest.fixture(scope="session")
def promtool(backend_program: Callable[[str], Path]) -> Path:
    """Prometheus's own checker."""
    return backend_program("promtool")


@pytest.fixture(scope="session")
def otelcol(backend_program: Callable[[str], Path]) -> Path:
    """The Collector's program."""
    return backend_program("otelcol")


@pytest.fixture(scope="session")
def schema_checker(backend_program: Callable[[str], Path]) -> Path:
    """Reads dashboards with the strict reader of Grafana's published schema."""
    return backend_program("dashboards")
