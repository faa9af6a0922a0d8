"""From an id of a trace, a span or a call back to the lines of the files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_gym.correlation.run import Run
from otel_gym.correlation.trace_ids import root_span_id, span_id, trace_id
from otel_gym.errors import StoreError
from otel_gym.tracing.files import (
    capture_files,
    open_capture,
    read_lines,
    record_file_name,
)
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.rollout import SUFFIX, rollout_record_ids
from otel_gym.tracing.spans import RecordPlace, span_from_record

_BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """A record, or a rollout, that an id names."""

    rollout_id: str
    file_name: str
    offset_bytes: int
    length_bytes: int
    line_number: int
    """Position among the file's lines that are not blank, from 0."""
    trace_id: str
    span_id: str
    model_call_id: str | None
    """Null for a rollout."""
    record: dict[str, Any] | None
    """Null for a rollout."""


def find_id(directory: Path, run: Run, wanted: str) -> Iterator[Found]:
    """Everything in `directory` that the id names: a trace's rollout with all its calls, one call, or one rollout.

    `wanted` is a trace id, a span id or a `model_call_id`. A file is read only where it can hold the id. Raises `StoreError` where nothing was found and a
    file could not be read.
    """
    unreadable: list[StoreError] = []
    found = list(_find(directory, run, wanted, unreadable, everywhere=False))
    # An id that stands in no file may still be the digest of a call id that is no 32 hex digits: then every record is looked at.
    found = found or list(_find(directory, run, wanted, unreadable, everywhere=True))
    if not found and unreadable:
        raise unreadable[0]
    yield from found


def _find(
    directory: Path, run: Run, wanted: str, unreadable: list[StoreError], *, everywhere: bool
) -> Iterator[Found]:
    lowered = wanted.lower()
    rollout_ids = sorted(
        {rollout_id for rollout_id, _ in capture_files(directory)}
        | set(rollout_record_ids(directory))
    )
    for rollout_id in rollout_ids:
        trace, root = trace_id(run.run_id, rollout_id), root_span_id(run.run_id, rollout_id)
        is_whole = lowered == trace
        if is_whole or lowered == root:
            yield Found(rollout_id, rollout_id + SUFFIX, 0, 0, 0, trace, root, None, None)
        try:
            if is_whole or everywhere or _holds(directory, rollout_id, wanted):
                yield from _in_file(directory, run, rollout_id, None if is_whole else wanted)
        except StoreError as error:
            unreadable.append(error)


def _holds(directory: Path, rollout_id: str, wanted: str) -> bool:
    """Whether the captures of a rollout hold `wanted` as text, in any of the forms it may have there."""
    file = open_capture(directory, rollout_id)
    if file is None:
        return False
    forms = {wanted.encode("utf-8", "replace"), wanted.lower().encode("utf-8", "replace")}
    overlap = max(len(form) for form in forms)
    rest = b""
    with file:
        while block := file.read(_BLOCK_BYTES):
            block = rest + block
            if any(form in block for form in forms):
                return True
            rest = block[-overlap:]
    return False


def _in_file(directory: Path, run: Run, rollout_id: str, wanted: str | None) -> Iterator[Found]:
    """The calls of a rollout that `wanted` names; all of them where it is null."""
    file = open_capture(directory, rollout_id)
    if file is None:
        return
    name = record_file_name(rollout_id)
    options = SpanOptions()
    with file:
        for number, line in enumerate(read_lines(file)):
            if line.record is None:
                continue
            call_id = str(line.record.get("model_call_id"))
            trace = line.record.get("trace")
            if wanted is not None and not _names(wanted, call_id, trace):
                continue
            place = RecordPlace(rollout_id, name, line.offset_bytes)
            span = span_from_record(line.record, place, run, options)
            if (
                wanted is not None
                and wanted != call_id
                and wanted.lower()
                not in (
                    span.span_id,
                    span.trace_id,
                )
            ):
                continue
            yield Found(
                rollout_id,
                name,
                line.offset_bytes,
                line.length_bytes,
                number,
                span.trace_id,
                span.span_id,
                call_id,
                line.record,
            )


def _names(wanted: str, call_id: str, trace: object) -> bool:
    """Whether a record with this call id and `trace` part may be what `wanted` names."""
    lowered = wanted.lower()
    if wanted == call_id or lowered == span_id(call_id):
        return True
    return isinstance(trace, dict) and lowered in (trace.get("trace_id"), trace.get("span_id"))
