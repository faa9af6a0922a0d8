"""Whatever happens in whatever order, in the end the backend has every record of the files."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_gym.correlation.run import Run
from otel_gym.tracing.answers import ACCEPTED, Answer
from otel_gym.tracing.encode import encode_span
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.files import capture_files, read_lines
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.pipeline import Pipeline, PipelineLimits
from otel_gym.tracing.spans import RecordPlace, span_from_record
from tests.tracing.records import append, call_id, gym_record

RUN = Run(schema=1, run_id="r", created_at=1.0, resource={})
OPTIONS = SpanOptions()
LIMITS = PipelineLimits(queue_max_spans=3, batch_max_spans=4, interval_s=0.001)


class Backend:
    """A backend in memory that can be away, and that refuses one record for good."""

    def __init__(self) -> None:
        self.is_away = False
        self.spans: dict[str, set[bytes]] = {}
        self.poison = call_id(7)[:16]

    def send(self, body: bytes) -> Answer:
        if self.is_away:
            return Answer("retry", "away", retry_after_s=0.001)
        spans = [
            span
            for part in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in part.scope_spans
            for span in scope.spans
        ]
        if any(span.span_id.hex() == self.poison for span in spans):
            return Answer("refused", "poison")
        for span in spans:
            self.spans.setdefault(span.span_id.hex(), set()).add(span.SerializeToString())
        return ACCEPTED

    def close(self) -> None:
        pass


class Scenario:
    """Servers and a sidecar on one directory, one backend, and a person who clears rollouts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.backend = Backend()
        self.number = 0
        self.servers = [self._pipeline(False), self._pipeline(False)]
        self.followers: list[Pipeline] = []

    def _pipeline(self, follow: bool) -> Pipeline:
        return Pipeline(
            self.directory,
            RUN,
            OPTIONS,
            OtlpEndpoint("http://backend/v1/traces"),
            limits=LIMITS,
            follow=follow,
            sender=lambda: self.backend,
        ).start()

    def do(self, step: tuple[str, Any]) -> None:
        kind, value = step
        if kind == "call":
            rollout, server = value
            written = append(self.directory, f"{rollout}-0", gym_record(self.number))
            self.number += 1
            if server is not None:
                self.servers[server].offer(written)
        elif kind == "away":
            self.backend.is_away = value
        elif kind == "restart":
            self.servers[value].close(0.02)
            self.servers[value] = self._pipeline(False)
        elif kind == "damage":
            with (self.directory / f"{value}-0.capture.jsonl").open("ab") as file:
                file.write(b"\ndamaged\n")
        elif kind == "clear":
            (self.directory / f"{value}-0.capture.jsonl").unlink(missing_ok=True)

    def end(self) -> dict[str, bytes]:
        """Lets everything come to rest, with one more start; gives the spans that the files now hold."""
        self.backend.is_away = False
        for server in self.servers:
            assert server.close(20)
        last = self._pipeline(True)
        assert last.flush(20)
        assert last.close(20)
        expected = {}
        for rollout_id, path in capture_files(self.directory):
            with path.open("rb") as file:
                for line in read_lines(file):
                    if line.record is not None:
                        place = RecordPlace(rollout_id, path.name, line.offset_bytes)
                        span = span_from_record(line.record, place, RUN, OPTIONS)
                        expected[span.span_id] = encode_span(span)
        return expected


ROLLOUT = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(st.just("call"), st.tuples(ROLLOUT, st.sampled_from([0, 0, 0, 1, None]))),
    st.tuples(st.just("call"), st.tuples(ROLLOUT, st.sampled_from([0, 1]))),
    st.tuples(st.just("away"), st.booleans()),
    st.tuples(st.just("restart"), st.sampled_from([0, 1])),
    st.tuples(st.just("damage"), ROLLOUT),
    st.tuples(st.just("clear"), ROLLOUT),
)


@given(st.lists(STEPS, max_size=60))
@settings(max_examples=40, deadline=None)
def test_nothing_is_lost(steps: list[tuple[str, Any]]) -> None:
    """Calls, outages, restarts, damaged lines and cleared rollouts in any order: at last every record has arrived, unchanged, save the refused one."""
    with tempfile.TemporaryDirectory() as directory:
        scenario = Scenario(Path(directory))
        for step in steps:
            scenario.do(step)
        expected = scenario.end()
        missing = set(expected) - set(scenario.backend.spans) - {scenario.backend.poison}
        assert not missing
        for span_id, encoded in expected.items():
            if span_id != scenario.backend.poison:
                assert len(scenario.backend.spans[span_id]) == 1, encoded
