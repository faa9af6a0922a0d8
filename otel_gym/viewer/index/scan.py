"""What stands in a capture directory right now: one state a rollout, from names and `stat` alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Container
from typing import NamedTuple

from otel_gym.capture.layout import INCOMPLETE, PACKED, RECORDS, ROLLOUT, Layout
from otel_gym.correlation.rollout_id import is_valid


class FileState(NamedTuple):
    """The files of one rollout, in the order of `schema.STATE_COLUMNS`; null for one that is not there."""

    plain_size: int | None = None
    plain_mtime_ns: int | None = None
    plain_inode: int | None = None
    packed_size: int | None = None
    packed_mtime_ns: int | None = None
    packed_inode: int | None = None
    record_size: int | None = None
    record_mtime_ns: int | None = None
    incomplete: int = 0

    @property
    def present(self) -> bool:
        """Whether the rollout has anything to show."""
        return not (self.plain_size is self.packed_size is self.record_size is None)


_SUFFIXES = (RECORDS, PACKED, ROLLOUT, INCOMPLETE)


def scan(layout: Layout, known: Container[str] = ()) -> dict[str, FileState]:
    """The state of every rollout of the directory; ids in `known` are not checked again. Raises `OSError` where it cannot be listed."""
    found: dict[str, dict[str, int]] = {}
    with os.scandir(layout.root) as entries:
        for entry in entries:
            name = entry.name
            suffix = next((one for one in _SUFFIXES if name.endswith(one)), None)
            if suffix is None or name[0] == ".":
                continue
            rollout_id = name[: -len(suffix)]
            facts = found.get(rollout_id)
            if facts is None:
                if rollout_id not in known and not is_valid(rollout_id):
                    continue
                facts = found[rollout_id] = {}
            try:
                _note(facts, suffix, entry.stat(follow_symlinks=False))
            except OSError:
                continue  # removed since it was listed
    states = ((name, FileState(**facts)) for name, facts in found.items())
    return {name: state for name, state in states if state.present}


def scan_one(layout: Layout, rollout_id: str) -> FileState:
    """The state of one rollout, whose id must be valid."""
    facts: dict[str, int] = {}
    for suffix in _SUFFIXES:
        try:
            _note(facts, suffix, os.lstat(layout.root / (rollout_id + suffix)))
        except OSError:
            continue  # not there
    return FileState(**facts)


def _note(facts: dict[str, int], suffix: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        return  # neither a link nor a pipe is followed out of the directory
    if suffix == INCOMPLETE:
        facts["incomplete"] = 1
    elif suffix == ROLLOUT:
        facts["record_size"] = found.st_size
        facts["record_mtime_ns"] = found.st_mtime_ns
    else:
        kind = "plain" if suffix == RECORDS else "packed"
        facts[f"{kind}_size"] = found.st_size
        facts[f"{kind}_mtime_ns"] = found.st_mtime_ns
        facts[f"{kind}_inode"] = found.st_ino
