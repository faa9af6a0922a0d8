"""A viewer of the test's own on loopback, and a directory to show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_gym.viewer.options import ViewerOptions
from tests.viewer.captures import small_run
from tests.viewer.server import RunningViewer, View


@pytest.fixture
def view() -> Iterator[View]:
    """Starts a viewer of a directory; options as of `ViewerOptions`."""
    running: list[RunningViewer] = []

    def start(directory: Path, **options: Any) -> RunningViewer:
        running.append(RunningViewer(replace(ViewerOptions(directory), **options)))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The small run of `captures.small_run`."""
    return small_run(tmp_path / "run-dir")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningViewer]:
    """A viewer of the small run that tests share which only ask."""
    viewer = RunningViewer(ViewerOptions(small_run(tmp_path_factory.mktemp("small") / "run-dir")))
    yield viewer
    viewer.stop()
