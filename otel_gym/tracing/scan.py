"""Which parts of a directory's capture files a backend has not got."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from otel_gym.capture.source import Source
from otel_gym.errors import StoreError
from otel_gym.tracing.cursors import FileCursor
from otel_gym.tracing.files import (
    CAPTURE_SUFFIX,
    COMPRESSED_SUFFIX,
    fingerprint,
    record_file_name,
    rollout_of,
)

PACKED_SUFFIX: Final = ".zst"
UNKNOWN_END: Final = 1 << 62
"""End of a gap in a packed file that another program has made: how long its content is, is known only when it has been read."""


class Gap(NamedTuple):
    """A part of a rollout's capture file that is still to be exported."""

    rollout_id: str
    start: int
    end: int
    is_own: bool
    """Whether its records pass this process for the first time, so that metrics count them."""
    since: float
    """Monotonic seconds since when it waits."""


class Packs:
    """How long the content of packed files is; each is opened once, and again when it has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int, int]] = {}

    def end_of(self, path: Path, packed: os.DirEntry[str]) -> int:
        """Where the captures end of which `packed` holds all, in bytes; those of the plain file `path` would follow."""
        try:
            status = packed.stat()
            known = self._known.get(packed.name)
            if known is not None and known[:2] == (status.st_mtime_ns, status.st_size):
                return known[2]
            end = _joined_end(path)
        except FileNotFoundError:
            return 0
        self._known[packed.name] = (status.st_mtime_ns, status.st_size, end)
        return end


def capture_sizes(directory: Path, packs: Packs | None = None) -> dict[str, int]:
    """Where the capture file of each rollout ends now, in bytes."""
    return {
        rollout_id: state.end
        for name, state in file_states(directory, packs or Packs())
        if (rollout_id := rollout_of(name)) is not None
    }


def gaps_left(
    directory: Path,
    sizes: Mapping[str, int],
    cursors: Mapping[str, FileCursor],
    *,
    is_own: bool,
    now: float,
    note: Callable[[str, str], None] | None = None,
) -> list[Gap]:
    """Everything in `directory`, as far as its files had grown to `sizes`, that `cursors` does not have; `note` is told fingerprints that were read."""
    gaps: list[Gap] = []
    for rollout_id, end in sizes.items():
        cursor = cursors.get(record_file_name(rollout_id))
        missing = [(0, end)] if end else []
        if cursor is not None:
            mark = fingerprint_or_none(directory, rollout_id)
            if mark is not None and note is not None:
                note(rollout_id, mark)
            if cursor.fingerprint == mark:
                missing = cursor.done.missing(end)
        gaps.extend(Gap(rollout_id, start, stop, is_own, now) for start, stop in missing)
    return gaps


class FileState(NamedTuple):
    """A rollout's captures at one look."""

    end: int
    """Where they end, in bytes."""
    stamp_ns: int
    """When the plain file was written last; 0 for a packed one, which is not written again."""


def file_states(directory: Path, packs: Packs) -> Iterator[tuple[str, FileState]]:
    """Each rollout's captures by the name of the plain file: one pass over the directory and one look at each file."""
    packed: list[os.DirEntry[str]] = []
    plain: dict[str, FileState] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(CAPTURE_SUFFIX):
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                plain[name] = FileState(status.st_size, status.st_mtime_ns)
            elif name.endswith(COMPRESSED_SUFFIX):
                packed.append(entry)
    for entry in packed:
        name = entry.name.removesuffix(PACKED_SUFFIX)
        path = directory / name
        state = plain.pop(name, None)
        if state is not None:
            yield name, FileState(_joined_end(path), state.stamp_ns)
        else:
            yield name, FileState(packs.end_of(path, entry), 0)
    yield from plain.items()


def fingerprint_or_none(directory: Path, rollout_id: str) -> str | None:
    """The fingerprint of a file, null for one that cannot be read: whoever reads it will say so."""
    try:
        return fingerprint(directory, rollout_id)
    except StoreError:
        return None


def _joined_end(path: Path) -> int:
    """Where the rollout ends that has a packed file, and perhaps a plain one at `path` that was written after it."""
    try:
        with Source(path, path.with_name(path.name + PACKED_SUFFIX), settle=False) as source:
            return source.length_bytes
    except FileNotFoundError:
        return 0
    except StoreError:
        # Whoever reads it will say so.
        return UNKNOWN_END
