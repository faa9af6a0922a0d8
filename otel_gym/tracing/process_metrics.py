"""What a serving process counts, written to a file for the sidecar: `.otel-gym/metrics/<process>.json`.

With `otel_gym.export: sidecar` the serving process loads no OpenTelemetry. Its counters, the writer's queue and the times of its batches still have to get
out: a small file, replaced every few seconds while something changes, and never synced, holds them. `ServedMetrics` in the sidecar reads the files of all
processes of a directory.

    {"schema": 1, "closed": false, "counters": {name: value}, "parts": {name: {label: value}},
     "queue": {"length": n, "bytes": n}, "histograms": {name: [[count, sum] per bucket]}}

A bucket of a histogram has its count and its sum, so that a reader can record as many values with the same sum in the same bucket.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
import weakref
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from otel_gym.counters import COUNTERS, count, counted_by_label, counters
from otel_gym.tracing.cursors import STATE_DIRECTORY

METRICS_DIRECTORY: Final = "metrics"
SCHEMA: Final = 1
INTERVAL_S: Final = 5.0

_DURATIONS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
HISTOGRAMS: Final[Mapping[str, tuple[str, str, tuple[float, ...]]]] = {
    "otel_gym.write.duration": ("s", "Appending one group of records.", _DURATIONS),
    "otel_gym.fsync.duration": ("s", "Syncing one group of records.", _DURATIONS),
    "otel_gym.write.batch_size": (
        "{record}",
        "Records made durable together.",
        (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0),
    ),
}
"""Distributions of a writer's batches: unit, meaning, buckets."""


class ObservedWriter(Protocol):
    """A writer whose queue and batches can be observed."""

    @property
    def waiting(self) -> int:
        """Records that wait."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """Their bytes."""
        ...

    def add_batch_listener(self, listener: Callable[[int, float, float], None]) -> None:
        """Calls `listener` after each batch: records in it, seconds of the append, seconds until its sync had ended."""
        ...


class Buckets:
    """Counts and sums of values by bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sums = [0.0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        """Adds a value; one that equals a bound belongs below it, as in OpenTelemetry."""
        index = bisect_left(self._bounds, value)
        self.counts[index] += 1
        self.sums[index] += value


class ProcessMetricsFile:
    """Writes the file of this process until it is closed. A forked child writes one of its own, once it has a batch."""

    _thread: threading.Thread | None
    _written: dict[str, Any]

    def __init__(
        self, directory: Path, writer: ObservedWriter, *, interval_s: float = INTERVAL_S
    ) -> None:
        self._folder = directory / STATE_DIRECTORY / METRICS_DIRECTORY
        self._writer = writer
        self._interval_s = interval_s
        self._inherited: dict[str, int] = {}
        self._inherited_parts: dict[str, dict[str, int]] = {}
        self._reset()
        self._spawn()
        writer.add_batch_listener(self._on_batch)
        _forkable.add(self)

    def close(self) -> None:
        """Writes for the last time."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        self.write(closed=True)

    def write(self, *, closed: bool = False) -> None:
        """Writes the file where something has changed; a failure is counted, and the next time is another try."""
        with self._lock:
            state = self._state(closed)
        if state == self._written:
            return
        path = self._folder / f"{self._name}.json"
        temporary = path.with_suffix(".tmp")
        try:
            for folder in (self._folder.parent, self._folder):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(orjson.dumps(state))
            os.replace(temporary, path)
        except OSError:
            count("export.failures")
            with contextlib.suppress(OSError):
                temporary.unlink()
            return
        self._written = state

    def _reset(self) -> None:
        self._name = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = None
        self._written = {}
        self._buckets = {name: Buckets(bounds) for name, (_, _, bounds) in HISTOGRAMS.items()}

    def _spawn(self) -> None:
        self._thread = threading.Thread(
            target=self._run, name="otel-gym-process-metrics", daemon=True
        )
        self._thread.start()

    def _after_fork(self) -> None:
        """In a child: what was counted so far is the parent's to tell."""
        self._inherited = counters()
        self._inherited_parts = {name: counted_by_label(name) for name in COUNTERS}
        self._reset()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self.write()

    def _on_batch(self, records: int, write_s: float, fsync_s: float) -> None:
        with self._lock:
            self._buckets["otel_gym.write.batch_size"].add(records)
            self._buckets["otel_gym.write.duration"].add(write_s)
            self._buckets["otel_gym.fsync.duration"].add(fsync_s)
            if self._thread is None and not self._ended.is_set():
                self._spawn()

    def _state(self, closed: bool) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "closed": closed,
            "counters": _since(counters(), self._inherited),
            "parts": {
                name: parts
                for name in COUNTERS
                if (parts := _since(counted_by_label(name), self._inherited_parts.get(name, {})))
            },
            "queue": {"length": self._writer.waiting, "bytes": self._writer.waiting_bytes},
            "histograms": {
                name: [list(pair) for pair in zip(buckets.counts, buckets.sums, strict=True)]
                for name, buckets in self._buckets.items()
            },
        }


def _since(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """What was added since `before`, where it is not 0."""
    return {
        name: added for name, value in now.items() if (added := value - before.get(name, 0)) > 0
    }


_forkable: weakref.WeakSet[ProcessMetricsFile] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for file in list(_forkable):
        file._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
