"""Comparing every record of a directory with what a backend has of it.

Clearing a rollout removes its records, but a backend keeps what it got. So a span that the files do not give may be of a cleared attempt; that is told
apart from a fault, where the rollout's generation file proves it (see `otel_gym.tracing.cleared`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from otel_gym.correlation.run import Run
from otel_gym.correlation.trace_ids import trace_id
from otel_gym.tracing.backfill import RolloutSpans, Selection, rollouts_of
from otel_gym.tracing.cleared import read_cleared_calls
from otel_gym.tracing.jaeger import JaegerReader, StoredSpan
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.span_data import ERROR, SpanData

Kind = Literal["missing", "extra", "different", "cleared"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One disagreement between the files and the backend."""

    kind: Kind
    """`cleared` is no fault: the span was exported before its attempt was cleared."""
    rollout_id: str
    trace_id: str
    span_id: str
    name: str
    where: str
    """File and offset of the record; empty for an extra span."""
    details: tuple[str, ...] = ()
    """Of a different span: each field, with the file's value and the backend's."""


@dataclass(slots=True)
class Verification:
    """What a comparison came to."""

    spans: int = 0
    """Spans that the files give."""
    rollouts: int = 0
    findings: list[Finding] = field(default_factory=list)
    """Faults: what is missing, extra or different."""
    cleared: list[Finding] = field(default_factory=list)
    """Spans of cleared attempts that the backend has kept."""


def verify_directory(
    directory: Path,
    run: Run,
    options: SpanOptions,
    jaeger: JaegerReader,
    *,
    selection: Selection | None = None,
    on_rollout: Callable[[str], None] | None = None,
) -> Verification:
    """Compares each selected rollout. A root that was made from calls may be absent, since a live export makes none. Raises `ExportError`."""
    result = Verification()
    for rollout_id, _ in rollouts_of(directory, selection or Selection()):
        result.rollouts += 1
        for finding in _verify_rollout(directory, rollout_id, run, options, jaeger, result):
            (result.cleared if finding.kind == "cleared" else result.findings).append(finding)
        if on_rollout is not None:
            on_rollout(rollout_id)
    return result


def _verify_rollout(
    directory: Path,
    rollout_id: str,
    run: Run,
    options: SpanOptions,
    jaeger: JaegerReader,
    result: Verification,
) -> Iterator[Finding]:
    home = trace_id(run.run_id, rollout_id)
    stored: dict[str, dict[str, list[StoredSpan]]] = {}

    def fetch(trace: str) -> dict[str, list[StoredSpan]]:
        if trace not in stored:
            by_id = stored[trace] = {}
            for span in jaeger.spans(trace):
                by_id.setdefault(span.span_id, []).append(span)
        return stored[trace]

    cleared = read_cleared_calls(directory, rollout_id)
    expected: set[tuple[str, str]] = set()
    for span, source in RolloutSpans(run, options).of(directory, rollout_id):
        expected.add((span.trace_id, span.span_id))
        is_made = span.attributes.get("otel_gym.rollout.synthesized") is True
        where = f"{source.file_name} at byte {source.start}" if source.end else source.file_name
        found = fetch(span.trace_id).get(span.span_id, [])
        is_root = not span.parent_span_id
        if not is_root:
            cleared.note_current(span.start_ns)
        told = [(copy, tuple(differences(span, copy, run))) for copy in found]
        if is_root and cleared:
            # An attempt's root has the same id as that of the attempt in whose place it came.
            for copy, details in told:
                if details and cleared.is_before(copy):
                    yield _finding("cleared", rollout_id, span.trace_id, copy)
            told = [each for each in told if not each[1] or not cleared.is_before(each[0])]
        if not told:
            if not is_made:
                result.spans += 1
                yield Finding("missing", rollout_id, span.trace_id, span.span_id, span.name, where)
            continue
        result.spans += 1
        for _, details in told:
            if details:
                yield Finding(
                    "different", rollout_id, span.trace_id, span.span_id, span.name, where, details
                )
                break
    extra = [
        copies[0] for span_id, copies in fetch(home).items() if (home, span_id) not in expected
    ]
    explained = cleared.explain(extra)
    for copy in extra:
        yield _finding("cleared" if copy in explained else "extra", rollout_id, home, copy)


def _finding(kind: Kind, rollout_id: str, trace: str, copy: StoredSpan) -> Finding:
    return Finding(kind, rollout_id, trace, copy.span_id, copy.name, "")


def differences(span: SpanData, stored: StoredSpan, run: Run) -> Iterator[str]:
    """Each field in which `stored` is not what `span` says, in words."""
    unit = stored.precision_ns
    start_ns, end_ns = span.start_ns // unit * unit, span.end_ns // unit * unit
    for name, ours, theirs in (
        ("name", span.name, stored.name),
        ("kind", span.kind, stored.kind),
        ("parent_span_id", span.parent_span_id, stored.parent_span_id),
        ("start_ns", start_ns, stored.start_ns),
        ("end_ns", end_ns, stored.end_ns),
        ("is_error", span.status.code == ERROR, stored.is_error),
        ("description", span.status.description, stored.description),
        (
            "links",
            sorted((link.trace_id, link.span_id) for link in span.links),
            sorted((link.trace_id, link.span_id) for link in stored.links),
        ),
        (
            "events",
            sorted((event.name, event.time_ns // unit * unit) for event in span.events),
            sorted((name, time_ns) for name, time_ns, _ in stored.events),
        ),
    ):
        if ours != theirs:
            yield f"{name}: {ours!r} in the files, {theirs!r} in the backend"
    for key in sorted(span.attributes.keys() | stored.attributes.keys()):
        if key not in stored.attributes:
            yield f"{key}: {span.attributes[key]!r} in the files, absent in the backend"
        elif key not in span.attributes:
            yield f"{key}: absent in the files, {stored.attributes[key]!r} in the backend"
        elif not _equal(span.attributes[key], stored.attributes[key]):
            yield f"{key}: {span.attributes[key]!r} in the files, {stored.attributes[key]!r} in the backend"
    for key, value in run.resource.items():
        if stored.resource.get(key) != value:
            yield f"resource {key}: {value!r} in the files, {stored.resource.get(key)!r} in the backend"


def _equal(ours: Any, theirs: Any) -> bool:
    """Whether a stored attribute holds our value; v1 has lists as JSON text, and large integers as text."""
    if isinstance(ours, (list, tuple)):
        if isinstance(theirs, str):
            try:
                theirs = orjson.loads(theirs)
            except orjson.JSONDecodeError:
                return False
        return isinstance(theirs, list) and list(ours) == theirs
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    if isinstance(ours, float):
        return isinstance(theirs, (int, float)) and math.isclose(ours, theirs, rel_tol=1e-12)
    if isinstance(ours, int) and isinstance(theirs, str):
        return str(ours) == theirs
    return bool(ours == theirs)
