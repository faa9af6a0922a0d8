"""What stands in a capture directory right now: one state a rollout, from names and `stat` alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Container
from typing import Any, Final, NamedTuple

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


_PLAIN, _PACKED, _RECORD, _INCOMPLETE = 0, 3, 6, 8
_PLACES: Final = {RECORDS: _PLAIN, PACKED: _PACKED, ROLLOUT: _RECORD, INCOMPLETE: _INCOMPLETE}
"""Where the facts of a file begin in a `FileState`, by its suffix."""


def scan(layout: Layout, known: Container[str] = ()) -> dict[str, FileState]:
    """The state of every rollout of the directory; ids in `known` are not checked again. Raises `OSError` where it cannot be listed."""
    found: dict[str, list[Any]] = {}
    with os.scandir(layout.root) as entries:
        for entry in entries:
            name = entry.name
            suffix = next((one for one in _PLACES if name.endswith(one)), None)
            if suffix is None or name[0] == ".":
                continue
            rollout_id = name[: -len(suffix)]
            facts = found.get(rollout_id)
            if facts is None:
                if rollout_id not in known and not is_valid(rollout_id):
                    continue
                facts = found[rollout_id] = list(_NOTHING)
            try:
                _note(facts, _PLACES[suffix], entry.stat(follow_symlinks=False))
            except OSError:
                continue  # removed since it was listed
    states = ((name, FileState._make(facts)) for name, facts in found.items())
    return {name: state for name, state in states if state.present}


def scan_one(layout: Layout, rollout_id: str) -> FileState:
    """The state of one rollout, whose id must be valid."""
    facts = list(_NOTHING)
    for suffix, place in _PLACES.items():
        try:
            _note(facts, place, os.lstat(layout.root / (rollout_id + suffix)))
        except OSError:
            continue  # not there
    return FileState._make(facts)


def _note(facts: list[Any], place: int, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        return  # neither a link nor a pipe is followed out of the directory
    if place == _INCOMPLETE:
        facts[place] = 1
        return
    facts[place], facts[place + 1] = found.st_size, found.st_mtime_ns
    if place != _RECORD:
        facts[place + 2] = found.st_ino


_NOTHING: Final = FileState()
