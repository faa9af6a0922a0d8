"""What a follower has not seen yet: records that are appended, files that are begun anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from otel_gym.tracing.files import record_file_name, rollout_of
from otel_gym.tracing.fingerprints import Fingerprints
from otel_gym.tracing.scan import (
    UNKNOWN_END,
    FileState,
    Gap,
    Packs,
    file_states,
    fingerprint_or_none,
)


class Growth:
    """How far the capture files of one directory were seen to have grown. Used by one thread."""

    def __init__(self, directory: Path, fingerprints: Fingerprints, packs: Packs) -> None:
        self._directory = directory
        self._fingerprints = fingerprints
        self._packs = packs
        self._seen: dict[str, FileState] = {}

    def begin(self, sizes: Mapping[str, int]) -> None:
        """Takes the files up to `sizes` (by rollout) as seen."""
        self._seen = {record_file_name(name): FileState(end, -1) for name, end in sizes.items()}

    def look(self, now: float) -> list[Gap]:
        """What has come since the last look; a file that vanished is forgotten, so that one of its name is new."""
        gaps: list[Gap] = []
        seen: dict[str, FileState] = {}
        for name, state in file_states(self._directory, self._packs):
            before = self._seen.get(name)
            if before == state:
                seen[name] = before
                continue
            seen[name] = state
            start = self._start(name, before, state)
            if start is not None and (rollout_id := rollout_of(name)) is not None:
                gaps.append(Gap(rollout_id, start, state.end, True, now))
        self._seen = seen
        return gaps

    def stopped(self, gap: Gap, position: int) -> None:
        """`gap` was read only up to `position`, where a torn last line begins, which is to be looked at again."""
        name = record_file_name(gap.rollout_id)
        seen = self._seen.get(name)
        if seen is not None and seen.end == gap.end < UNKNOWN_END:
            self._seen[name] = seen._replace(end=position)

    def _start(self, name: str, before: FileState | None, state: FileState) -> int | None:
        """Where the unseen part of a file begins; null where there is none."""
        if before is None:
            return 0 if state.end else None
        if state.end > before.end:
            return before.end
        if state.end == before.end:
            return 0 if self._is_anew(name, before, state) else None
        return 0 if state.end > 0 and before.end != UNKNOWN_END else None

    def _is_anew(self, name: str, before: FileState, state: FileState) -> bool:
        """Whether a file that is as long as before is another one all the same."""
        if not before.stamp_ns < state.stamp_ns or not state.end:
            return False
        rollout_id = rollout_of(name)
        known = None if rollout_id is None else self._fingerprints.known(rollout_id)
        if rollout_id is None or known is None:
            return False
        return fingerprint_or_none(self._directory, rollout_id) not in (None, known)
