"""Every span that these tests make is walked against the convention tables when its test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gym.correlation.run import Run, open_run
from otel_gym.tracing import spans
from otel_gym.tracing.semconv import Naming, naming
from otel_gym.tracing.span_data import SpanData
from tests.tracing.conformance import problems
from tests.tracing.receiver import Receiver

RESOURCE = {"service.name": "otel-gym-test", "host.name": "test", "service.version": "1"}


@pytest.fixture(autouse=True)
def _walk_spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Collects all spans of a test, with the versions they were made under, and checks each."""
    made: list[tuple[SpanData, tuple[str, ...]]] = []
    versions: list[tuple[str, ...]] = [("genai-0.1",)]
    initialise = SpanData.__init__

    def noting(chosen: tuple[str, ...]) -> Naming:
        versions[0] = chosen
        return naming(chosen)

    def recording(self: SpanData, *arguments: object, **named: object) -> None:
        initialise(self, *arguments, **named)  # type: ignore[arg-type]
        if len(made) < 60:
            made.append((self, versions[0]))

    monkeypatch.setattr(spans, "naming", noting)
    monkeypatch.setattr(SpanData, "__init__", recording)
    yield
    monkeypatch.undo()
    wrong = {
        f"{span.name}: {problem}" for span, chosen in made for problem in problems(span, chosen)
    }
    assert not wrong, "\n".join(sorted(wrong)[:20])


@pytest.fixture
def run() -> Run:
    """A run that is written nowhere."""
    return Run(schema=1, run_id="run-1", created_at=1.0, resource=RESOURCE)


@pytest.fixture
def captures(tmp_path: Path) -> tuple[Path, Run]:
    """A capture directory with a run."""
    directory = tmp_path / "captures"
    directory.mkdir()
    return directory, open_run(directory, run_id="run-1", resource=RESOURCE)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A real OTLP receiver."""
    listening = Receiver()
    yield listening
    listening.close()
