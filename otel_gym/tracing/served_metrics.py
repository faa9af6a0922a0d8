"""What the serving processes of a directory count, as the sidecar reads it; see `otel_gym.tracing.process_metrics`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from otel_gym.counters import COUNTERS, count
from otel_gym.tracing.cursors import STATE_DIRECTORY
from otel_gym.tracing.process_metrics import HISTOGRAMS, INTERVAL_S, METRICS_DIRECTORY
from otel_gym.tracing.reading import count as whole
from otel_gym.tracing.reading import mapping, number, sequence

FORGOTTEN_AFTER_S: Final = 60.0
"""A file that was not touched for so long when the sidecar began belongs to a process of an earlier time."""
MAX_FILE_BYTES: Final = 1 << 20
MOST_REPEATS: Final = 100_000
"""Most values of one bucket that one reading hands on."""


@dataclass(slots=True)
class _Process:
    """The last that was read of one file."""

    stamp_ns: int = -1
    state: Mapping[str, Any] = field(default_factory=dict)
    seen: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Buckets that were handed on."""


class ServedMetrics:
    """Sums over the files of a directory. Files come and go; what was counted once stays counted."""

    def __init__(self, directory: Path, record: Callable[[str, float], None]) -> None:
        """`record(histogram, value)` is told of every value of a distribution."""
        self._folder = directory / STATE_DIRECTORY / METRICS_DIRECTORY
        self._record = record
        self._since_s = time.time() - FORGOTTEN_AFTER_S
        self._processes: dict[str, _Process] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> ServedMetrics:
        """Reads every few seconds until it is closed. Returns itself."""
        self.read()
        self._thread = threading.Thread(target=self._run, name="otel-gym-served", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Reads for the last time."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        self.read()

    def read(self) -> None:
        """Takes over what has changed; a file that cannot be read is counted and left for the next time."""
        with self._lock:
            try:
                paths = sorted(self._folder.glob("*.json"))
            except OSError:
                count("export.failures")
                return
            for path in paths:
                try:
                    self._read(path)
                except FileNotFoundError:
                    continue
                except (OSError, orjson.JSONDecodeError):
                    count("export.failures")

    def counted(self, name: str) -> int:
        """The counter `name`, over all processes."""
        return sum(self._values(lambda state: mapping(state.get("counters")).get(name)))

    def counted_by_label(self, name: str) -> dict[str, int]:
        """The parts of the counter `name`, over all processes."""
        parts: dict[str, int] = {}
        for process in list(self._processes.values()):
            for label, value in mapping(mapping(process.state.get("parts")).get(name)).items():
                parts[label] = parts.get(label, 0) + (whole(value) or 0)
        return parts

    def queue(self, measure: str) -> int | None:
        """Length or bytes of all writers' queues together; null where no process tells."""
        open_states = [p.state for p in list(self._processes.values()) if not p.state.get("closed")]
        if not open_states:
            return None
        return sum(whole(mapping(each.get("queue")).get(measure)) or 0 for each in open_states)

    def _values(self, pick: Callable[[Mapping[str, Any]], object]) -> list[int]:
        return [whole(pick(each.state)) or 0 for each in list(self._processes.values())]

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self.read()

    def _read(self, path: Path) -> None:
        status = path.stat()
        process = self._processes.get(path.name)
        if process is None:
            if status.st_mtime < self._since_s:
                return
            process = self._processes[path.name] = _Process()
        if status.st_mtime_ns == process.stamp_ns or status.st_size > MAX_FILE_BYTES:
            return
        state = orjson.loads(path.read_bytes())
        if type(state) is not dict:
            raise orjson.JSONDecodeError("no JSON object", "", 0)
        process.stamp_ns, process.state = status.st_mtime_ns, state
        for name, (_, _, bounds) in HISTOGRAMS.items():
            self._hand_on(process, name, len(bounds) + 1, mapping(state.get("histograms")))

    def _hand_on(
        self, process: _Process, name: str, length: int, histograms: Mapping[str, Any]
    ) -> None:
        """Records what the buckets of a histogram have gained: as many values, of the same sum."""
        buckets = sequence(histograms.get(name))
        if len(buckets) != length:
            return
        before = process.seen.get(name) or [(0, 0.0)] * length
        after: list[tuple[int, float]] = []
        for bucket, (known, known_sum) in zip(buckets, before, strict=True):
            pair = [*sequence(bucket), None, None]
            values, total = whole(pair[0]), number(pair[1])
            if values is None or total is None:
                return
            after.append((values, total))
            gained = min(values - known, MOST_REPEATS)
            for _ in range(gained):
                self._record(name, max(0.0, (total - known_sum) / gained))
        process.seen[name] = after


def served_counter(
    served: ServedMetrics | None, name: str, own: int, own_parts: Mapping[str, int]
) -> tuple[int, dict[str, int]]:
    """A counter of this process and of those that are served, with its parts. Raises `KeyError` for a name that is not in `COUNTERS`."""
    assert name in COUNTERS, name
    if served is None:
        return own, dict(own_parts)
    parts = served.counted_by_label(name)
    for label, value in own_parts.items():
        parts[label] = parts.get(label, 0) + value
    return own + served.counted(name), parts
