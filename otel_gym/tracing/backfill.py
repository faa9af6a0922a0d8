"""Export from files, once: every record of a directory, or a choice of them, as the same spans that a live export makes.

Nothing is read from or written to cursors, and no metric is counted: running it again is harmless. A rollout without a rollout record gets a root made
from its calls and marked `otel_gym.rollout.synthesized`, so that its trace has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_gym.correlation.run import Run
from otel_gym.errors import StoreError
from otel_gym.tracing.batch import Source
from otel_gym.tracing.files import capture_files, open_capture, read_lines, record_file_name
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.rollout import read_rollout_mapping, rollout_record_ids
from otel_gym.tracing.sinks import SpanSink
from otel_gym.tracing.span_data import ERROR, SpanData
from otel_gym.tracing.spans import RecordPlace, rollout_span, span_from_record


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records are meant."""

    rollout_ids: frozenset[str] | None = None
    """Null: all rollouts of the directory."""
    since_s: float | None = None
    """Only what was completed at or after this, Unix seconds."""


@dataclass(slots=True)
class Summary:
    """What an export did."""

    calls: int = 0
    rollouts: int = 0
    """Root spans from rollout records."""
    synthesized: int = 0
    """Root spans made from calls."""
    damaged: int = 0
    """Lines and rollout records that could not be read."""
    unreadable: int = 0
    """Capture files that could not be read, or not to their end."""
    parked: int = 0
    """Spans that the backend refused for good."""

    @property
    def spans(self) -> int:
        """All spans."""
        return self.calls + self.rollouts + self.synthesized

    def add(self, other: Summary) -> None:
        """Adds another part's figures."""
        self.calls += other.calls
        self.rollouts += other.rollouts
        self.synthesized += other.synthesized
        self.damaged += other.damaged
        self.unreadable += other.unreadable
        self.parked += other.parked


@dataclass(slots=True)
class RolloutSpans:
    """The spans of one rollout, as files give them."""

    run: Run
    options: SpanOptions
    summary: Summary = field(default_factory=Summary)

    def of(
        self, directory: Path, rollout_id: str, since_s: float | None = None
    ) -> Iterator[tuple[SpanData, Source]]:
        """Every call of the rollout, then its root."""
        name = record_file_name(rollout_id)
        seen = _Seen(rollout_id)
        file = open_capture(directory, rollout_id)
        record = self._record(directory, rollout_id)
        since_ns = None if since_s is None else round(since_s * 1e6) * 1000
        if file is not None:
            with file:
                for line in read_lines(file):
                    raw = line.record
                    if raw is None:
                        self.summary.damaged += 1
                        continue
                    offset = line.offset_bytes
                    place = RecordPlace(rollout_id, name, offset)
                    span = span_from_record(raw, place, self.run, self.options)
                    if record is None:
                        seen.add(span)
                    if since_ns is not None and span.end_ns < since_ns:
                        continue
                    self.summary.calls += 1
                    yield (
                        span,
                        Source(
                            name,
                            "",
                            offset,
                            offset + line.length_bytes,
                            str(raw.get("model_call_id")),
                        ),
                    )
        root = record if record is not None else seen.record()
        if root is None:
            return
        span = rollout_span(root, self.run, self.options)
        if since_ns is not None and span.end_ns < since_ns:
            return
        if record is None:
            self.summary.synthesized += 1
        else:
            self.summary.rollouts += 1
        yield span, Source(f"{rollout_id}.rollout.json", "", 0, 0, rollout_id)

    def _record(self, directory: Path, rollout_id: str) -> Mapping[str, Any] | None:
        try:
            return read_rollout_mapping(directory, rollout_id)
        except StoreError:
            self.summary.damaged += 1
            return None


def rollouts_of(directory: Path, selection: Selection) -> list[tuple[str, int]]:
    """(rollout id, size in bytes) of the selected rollouts that have calls or a record, sorted by id."""
    sizes = {rollout_id: path.stat().st_size for rollout_id, path in capture_files(directory)}
    for rollout_id in rollout_record_ids(directory):
        sizes.setdefault(rollout_id, 0)
    chosen = selection.rollout_ids
    return sorted(item for item in sizes.items() if chosen is None or item[0] in chosen)


def export_rollouts(
    directory: Path,
    rollout_ids: Iterable[str],
    run: Run,
    options: SpanOptions,
    sink: SpanSink,
    *,
    since_s: float | None = None,
    on_rollout: Callable[[str], None] | None = None,
) -> Summary:
    """Gives the spans of the rollouts to `sink` and closes it. Raises `ExportError`."""
    spans = RolloutSpans(run, options)
    for rollout_id in rollout_ids:
        try:
            for span, source in spans.of(directory, rollout_id, since_s):
                sink.add(span, source)
        except (StoreError, OSError):
            spans.summary.unreadable += 1
        if on_rollout is not None:
            on_rollout(rollout_id)
    spans.summary.parked += sink.close()
    return spans.summary


class _Seen:
    """What a synthesized root is made of."""

    def __init__(self, rollout_id: str) -> None:
        self._rollout_id = rollout_id
        self._start_ns = 0
        self._end_ns = 0
        self._calls = 0
        self._failed = 0
        self._tools = 0
        self._tokens: dict[str, int] = {}

    def add(self, span: SpanData) -> None:
        self._start_ns = min(self._start_ns, span.start_ns) if self._calls else span.start_ns
        self._end_ns = max(self._end_ns, span.end_ns)
        self._calls += 1
        self._failed += span.status.code == ERROR
        attributes = span.attributes
        for key in ("input_tokens", "output_tokens"):
            tokens = attributes.get(f"gen_ai.usage.{key}")
            if type(tokens) is int:
                self._tokens[key] = self._tokens.get(key, 0) + tokens
        tools = attributes.get("otel_gym.tool_calls.count")
        if type(tools) is int:
            self._tools += tools

    def record(self) -> dict[str, Any] | None:
        """A rollout record made from the calls, null where there was none."""
        if not self._calls:
            return None
        return {
            "rollout_id": self._rollout_id,
            "started_at": self._start_ns / 1e9,
            "completed_at": self._end_ns / 1e9,
            "synthesized": True,
            "totals": {
                "model_calls": self._calls,
                "failed_model_calls": self._failed,
                "tool_calls": self._tools,
                **self._tokens,
            },
        }
