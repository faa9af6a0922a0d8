"""The files of one rollout as rows of the index."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from otel_gym.capture.layout import RECORDS, Layout
from otel_gym.capture.source import Source
from otel_gym.correlation.run import Run
from otel_gym.correlation.trace_ids import trace_id
from otel_gym.counters import count
from otel_gym.errors import StoreError
from otel_gym.tracing.rollout import read_rollout_mapping
from otel_gym.tracing.trace_place import RolloutNames
from otel_gym.viewer.index.call_row import call_row
from otel_gym.viewer.index.scan import FileState
from otel_gym.viewer.index.schema import CallRow
from otel_gym.viewer.index.summary_row import name_columns, summary_columns
from otel_gym.viewer.nesting import shallow

logger = logging.getLogger(__name__)

_FINGERPRINT_BYTES: Final = 4096
_AT_ONCE_BYTES: Final = 1 << 20
"""A plain file of at most this size is read in one go."""


class Indexed(NamedTuple):
    """How far a rollout is in the index."""

    key: int
    indexed_bytes: int
    lines: int
    damaged: int
    head: str
    tail: str
    calls: Callable[[], Sequence[CallRow]]
    """Reads the rows of its calls."""


@dataclass(slots=True)
class RolloutRows:
    """What is to be put into the index."""

    row: Sequence[Any]
    """Values of `ROLLOUT_COLUMNS`."""
    kept: bool
    """Whether the rows that are there stay, and `calls` come after them."""
    calls: Sequence[CallRow]


@dataclass(slots=True)
class _Read:
    """How far a file was read."""

    old: Sequence[CallRow] = ()
    """Rows that stay as they are."""
    end: int = 0
    lines: int = 0
    damaged: int = 0
    head: str = ""
    tail: str = ""
    calls: list[CallRow] = field(default_factory=list)


class RolloutReader:
    """Reads rollouts of one directory and run."""

    def __init__(self, layout: Layout, run: Run) -> None:
        self._layout = layout
        self._run = run
        self._prefix = os.path.join(layout.root, "")

    def read(self, rollout_id: str, state: FileState, known: Indexed | None) -> RolloutRows:
        """The rows of a rollout whose files look like `state`; only what is new where the rest is `known` and has not changed."""
        read = _Read()
        try:
            data = self._small(rollout_id, state) if known is None else None
            if data is not None:
                self._add(rollout_id, read, _split(data), {})
                read.head, read.tail = _digests(data[: read.end])
            else:
                self._read_source(rollout_id, known, read)
        except (StoreError, OSError) as error:
            count("store.failures")
            logger.warning("%s cannot be read whole: %s", rollout_id, error)
            read.damaged += 1
        record = self._record(rollout_id) if state.record_size is not None else {}
        row = (
            rollout_id,
            *name_columns(rollout_id, self._run.run_id).values(),
            *state,
            read.end,
            read.lines,
            read.damaged,
            read.head,
            read.tail,
            *summary_columns([*read.old, *read.calls], record).values(),
        )
        return RolloutRows(row, bool(read.old), read.calls)

    def _read_source(self, rollout_id: str, known: Indexed | None, read: _Read) -> None:
        """Reads the files line by line, after what is known of them."""
        layout = self._layout
        with Source(layout.records(rollout_id), layout.packed(rollout_id)) as source:
            if (
                known is not None
                and known.indexed_bytes
                and _fingerprint(source, known.indexed_bytes) == (known.head, known.tail)
            ):
                read.end, read.lines, read.damaged = known[1:4]
                read.old = known.calls()
            seen = {call.chain: call.number for call in read.old if call.messages}
            self._add(rollout_id, read, source.lines(read.end), seen)
            read.head, read.tail = _fingerprint(source, read.end)

    def _add(
        self,
        rollout_id: str,
        read: _Read,
        lines: Iterable[tuple[int, bytes]],
        seen: dict[str, int],
    ) -> None:
        # The root's span id is left out: it takes a digest to make, and no row holds it.
        names = RolloutNames(trace_id(self._run.run_id, rollout_id), "", ())
        for offset, line in lines:
            if not line.endswith(b"\n"):
                break  # still being written
            read.end = offset + len(line)
            if not line.strip():
                continue
            raw = record_of(line)
            if raw is None:
                read.damaged += 1
            else:
                row = functools.partial(
                    call_row,
                    number=read.lines,
                    offset_bytes=offset,
                    length_bytes=len(line),
                    names=names,
                    seen=seen,
                )
                try:
                    read.calls.append(row(raw))
                except RecursionError:
                    read.calls.append(row(shallow(raw)))
            read.lines += 1

    def _small(self, rollout_id: str, state: FileState) -> bytes | None:
        """All bytes of a rollout that is one small plain file, the one that `state` is of; null for any other."""
        if state.packed_size is not None or (state.plain_size or _AT_ONCE_BYTES) >= _AT_ONCE_BYTES:
            return None
        try:
            descriptor = os.open(
                self._prefix + rollout_id + RECORDS,
                os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY,
            )
        except OSError:
            return None  # whatever it is, reading it the other way says so
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_ino != state.plain_inode:
                return None
            # What was appended since is read the next time, when its state is another.
            data = os.read(descriptor, state.plain_size or 0)
        finally:
            os.close(descriptor)
        return data if len(data) == state.plain_size else None

    def _record(self, rollout_id: str) -> dict[str, Any]:
        try:
            return dict(read_rollout_mapping(self._layout.root, rollout_id) or {})
        except (StoreError, OSError):
            return {}


def record_of(line: bytes) -> dict[str, Any] | None:
    """The raw record of a line; null where it is none."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _split(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < len(data):
        end = data.find(b"\n", offset) + 1 or len(data)
        yield offset, data[offset:end]
        offset = end


def _fingerprint(source: Source, end: int) -> tuple[str, str]:
    """Digests of the beginning and the end of the first `end` bytes; empty where there are not so many."""
    if not end or source.length_bytes < end:
        return "", ""
    size = min(_FINGERPRINT_BYTES, end)
    return _digest(source.read(0, size)), _digest(source.read(end - size, size))


def _digests(data: bytes) -> tuple[str, str]:
    if not data:
        return "", ""
    head = _digest(data[:_FINGERPRINT_BYTES])
    short = len(data) <= _FINGERPRINT_BYTES
    return head, head if short else _digest(data[-_FINGERPRINT_BYTES:])


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
