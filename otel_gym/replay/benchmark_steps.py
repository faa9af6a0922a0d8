"""What the benchmark measures: the same steps done by this package and by a plain baseline.

The baseline is what one would write without any library: the history is copied on capture and on replay
(`copy.deepcopy`), and written and read as one text by the standard `json`.
"""

from __future__ import annotations

import copy
import json
import time
import tracemalloc
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from otel_gym.replay.benchmark_input import SCOPE
from otel_gym.replay.capture import capture_turn
from otel_gym.replay.container import restore, snapshot
from otel_gym.replay.projection import project
from otel_gym.replay.store import HistoryStore
from otel_gym.replay.wire_texts import WIRE_TEXTS

T = TypeVar("T")


class Steps(ABC):
    """The steps of one implementation, from captured responses to replayed items."""

    name: str

    @abstractmethod
    def capture(self, inputs: list[Any]) -> Any:
        """Responses -> stored turns."""

    @abstractmethod
    def snapshot(self, history: Any) -> bytes:
        """History -> bytes."""

    @abstractmethod
    def restore(self, archive: bytes) -> Any:
        """Bytes -> history."""

    @abstractmethod
    def replay(self, history: Any) -> list[Any]:
        """History -> input items as plain lists."""

    @abstractmethod
    def wire(self, history: Any) -> bytes:
        """History -> input items as JSON text."""

    def forget(self) -> None:  # noqa: B027  # most have nothing to forget
        """Drop what earlier steps may have kept for later ones."""

    @abstractmethod
    def checkpoints(self, history: Any, directory: Path) -> tuple[int, int]:
        """A durable checkpoint after each turn: bytes written by them, and bytes of the files at the end."""


class OurSteps(Steps):
    """This package. The written bytes are those that SQLite appends to its log to make turns durable."""

    name = "otel-gym"

    def capture(self, inputs: list[Any]) -> Any:
        return [capture_turn(response, SCOPE) for response in inputs]

    def snapshot(self, history: Any) -> bytes:
        return snapshot(history)

    def restore(self, archive: bytes) -> Any:
        return restore(archive)

    def replay(self, history: Any) -> list[Any]:
        return project(history, SCOPE).items

    def wire(self, history: Any) -> bytes:
        return project(history, SCOPE).to_json()

    def forget(self) -> None:
        WIRE_TEXTS.clear()

    def checkpoints(self, history: Any, directory: Path) -> tuple[int, int]:
        path = directory / "history.db"
        before = _written_bytes()
        with HistoryStore(path) as store:
            for turns in range(1, len(history) + 1):
                store.checkpoint("benchmark", history[:turns])
            appended = _written_bytes() - before
        return appended, path.stat().st_size


class PlainSteps(Steps):
    """The baseline."""

    name = "plain json"

    def capture(self, inputs: list[Any]) -> Any:
        return [
            copy.deepcopy((json.loads(each) if isinstance(each, bytes) else each)["output"])
            for each in inputs
        ]

    def snapshot(self, history: Any) -> bytes:
        return json.dumps(history, separators=(",", ":")).encode()

    def restore(self, archive: bytes) -> Any:
        return json.loads(archive)

    def replay(self, history: Any) -> list[Any]:
        return [item for turn in copy.deepcopy(history) for item in turn]

    def wire(self, history: Any) -> bytes:
        items = [item for turn in history for item in turn]
        return json.dumps(items, separators=(",", ":")).encode()

    def checkpoints(self, history: Any, directory: Path) -> tuple[int, int]:
        path = directory / "history.json"
        written = 0
        for turns in range(1, len(history) + 1):
            written += path.write_bytes(self.snapshot(history[:turns]))
        return written, path.stat().st_size


class Stopwatch:
    """Seconds of wall clock and of this process's CPU, by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    def timed(self, step: str, work: Callable[[], T]) -> T:
        """Do some work and take its times."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.cpu_seconds[step] = time.process_time() - cpu
        self.seconds[step] = time.perf_counter() - wall
        return result


def peak_bytes(work: Callable[[], object]) -> int:
    """The most that `work` had allocated at once, beyond what was there before, its result included."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        kept = work()
        _, peak = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return peak - before


def _written_bytes() -> int:
    """Bytes that this process has passed to write calls so far; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("wchar:")), 0)
