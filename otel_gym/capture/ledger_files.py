"""What the ledger looks up once for a whole directory: which files there are, how often rollouts were cleared, and what was exported."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from otel_gym.capture.fence import read_fence
from otel_gym.capture.layout import INCOMPLETE, PACKED, RECORDS, ROLLOUT, STALE, Layout
from otel_gym.correlation.rollout_id import is_valid


@dataclass(slots=True)
class DirectoryFiles:
    """What stands in the directory, by one look at it: a hundred thousand rollouts are not asked for each file that they could have."""

    rollouts: set[str] = field(default_factory=set)
    incomplete: set[str] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)
    played: set[str] = field(default_factory=set)
    """Rollouts that a collection has told of."""
    invalid: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, layout: Layout) -> DirectoryFiles:
        files = cls()
        with contextlib.suppress(FileNotFoundError), os.scandir(layout.root) as entries:
            for entry in entries:
                files._add(entry.name)
        with (
            contextlib.suppress(FileNotFoundError),
            os.scandir(layout.generations) as entries,
        ):
            files.rollouts.update(entry.name for entry in entries if is_valid(entry.name))
        files.invalid.sort()
        return files

    def _add(self, name: str) -> None:
        for suffix in (RECORDS, PACKED, INCOMPLETE, STALE, ROLLOUT):
            rollout_id = name.removesuffix(suffix)
            if rollout_id == name:
                continue
            if is_valid(rollout_id):
                self.rollouts.add(rollout_id)
                if suffix == INCOMPLETE:
                    self.incomplete.add(rollout_id)
                elif suffix == STALE:
                    self.stale.add(rollout_id)
                elif suffix == ROLLOUT:
                    self.played.add(rollout_id)
            elif not name.endswith(".tmp"):
                self.invalid.append(name)
            return


class Fences:
    """Generation and cleared records of each rollout; zeros, and a reason, where its file cannot be read."""

    def __init__(self, layout: Layout) -> None:
        self._directory = os.fspath(layout.generations)
        self.unreadable: dict[str, str] = {}

    def of(self, rollout_id: str) -> tuple[int, int]:
        try:
            return read_fence(self._directory, rollout_id)
        except OSError as error:
            self.unreadable[rollout_id] = (
                f"{self._directory}/{rollout_id}: cannot be read: {error.strerror}"
            )
            return 0, 0

    def generation(self, rollout_id: str) -> int:
        return self.of(rollout_id)[0]


class Exported:
    """The byte ranges that backends have accepted, from the export's journals."""

    def __init__(self, journals: list[Path]) -> None:
        ranges: dict[str, list[tuple[int, int]]] = {}
        for journal in journals:
            with journal.open("rb") as file:
                for line in file:
                    with contextlib.suppress(ValueError, TypeError):
                        name, _, start, end = orjson.loads(line)
                        ranges.setdefault(name, []).append((int(start), int(end)))
        self._merged = {name: _merge(spans) for name, spans in ranges.items()}

    def has(self, rollout_id: str, offset: int) -> bool:
        """Whether the line at this offset was accepted by at least one backend."""
        starts, ends = self._merged.get(rollout_id + RECORDS, ([], []))
        at = bisect_right(starts, offset) - 1
        return at >= 0 and offset < ends[at]


def _merge(spans: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    starts: list[int] = []
    ends: list[int] = []
    for start, end in sorted(spans):
        if ends and start <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            starts.append(start)
            ends.append(end)
    return starts, ends


def exported_ranges(layout: Layout) -> Exported | None:
    """What backends have accepted; null where nothing was ever exported from the directory."""
    journals = sorted((layout.private / "cursors").glob("*.jsonl"))
    return Exported(journals) if journals else None
