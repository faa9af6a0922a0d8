"""Where everything in a capture directory stands.

<dir>/
├── run.json                            which run this is
├── <rollout_id>.capture.jsonl          the records
├── <rollout_id>.capture.jsonl.zst      the same, packed
├── <rollout_id>.capture.incomplete     marker: at least one call may be missing
├── <rollout_id>.stale.jsonl            records of a cleared attempt that came too late
├── <rollout_id>.rollout.json           what is known of the rollout itself
└── .otel-gym/
    ├── claims/<producer>.claims        calls in flight, one file a producer process
    ├── producers/<producer>.json       what a producer has seen and could not do
    ├── generations/<rollout_id>        how often a rollout was cleared
    ├── index/<rollout_id>.json         offsets by model call, rebuildable
    └── cursors/                        of the export
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

RECORDS: Final = ".capture.jsonl"
PACKED: Final = ".capture.jsonl.zst"
INCOMPLETE: Final = ".capture.incomplete"
STALE: Final = ".stale.jsonl"
ROLLOUT: Final = ".rollout.json"
PRIVATE: Final = ".otel-gym"


class Layout:
    """Paths of one capture directory; touches nothing."""

    __slots__ = ("claims", "device", "generations", "index", "private", "producers", "root")

    def __init__(self, root: Path) -> None:
        self.root = root
        self.device: int | None = None
        """Number of the file system that the directory was last seen on; null before that."""
        self.private = root / PRIVATE
        self.claims = self.private / "claims"
        self.producers = self.private / "producers"
        self.generations = self.private / "generations"
        self.index = self.private / "index"

    def records(self, rollout_id: str) -> Path:
        return self.root / (rollout_id + RECORDS)

    def packed(self, rollout_id: str) -> Path:
        return self.root / (rollout_id + PACKED)

    def incomplete(self, rollout_id: str) -> Path:
        return self.root / (rollout_id + INCOMPLETE)

    def stale(self, rollout_id: str) -> Path:
        return self.root / (rollout_id + STALE)
