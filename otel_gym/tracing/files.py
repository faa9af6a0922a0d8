"""Reading capture files by place, as they grow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import orjson

from otel_gym.correlation.rollout_id import is_valid

CAPTURE_SUFFIX: Final = ".capture.jsonl"
COMPRESSED_SUFFIX: Final = ".capture.jsonl.zst"
_READ_BYTES: Final = 1 << 20
_FINGERPRINT_BYTES: Final = 512


class Line(NamedTuple):
    """One line of a capture file."""

    offset_bytes: int
    length_bytes: int
    """Length with the newline."""
    record: dict[str, Any] | None
    """Null for a line that is no JSON object."""


def rollout_of(file_name: str) -> str | None:
    """The rollout whose captures the file `file_name` holds; null for any other file."""
    for suffix in (CAPTURE_SUFFIX, COMPRESSED_SUFFIX):
        if file_name.endswith(suffix):
            rollout_id = file_name[: -len(suffix)]
            return rollout_id if is_valid(rollout_id) else None
    return None


def capture_files(directory: Path) -> list[tuple[str, Path]]:
    """(rollout id, path) of every capture file in `directory`, sorted by rollout; a plain file hides a compressed twin."""
    found: dict[str, Path] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            rollout_id = rollout_of(entry.name)
            if rollout_id is not None and (
                rollout_id not in found or entry.name.endswith(CAPTURE_SUFFIX)
            ):
                found[rollout_id] = directory / entry.name
    return sorted(found.items())


def record_file_name(rollout_id: str) -> str:
    """The name that a rollout's captures have, compressed or not."""
    return rollout_id + CAPTURE_SUFFIX


def open_capture(directory: Path, rollout_id: str) -> BinaryIO | None:
    """The captures of a rollout as uncompressed bytes, null where there is no file."""
    try:
        return (directory / record_file_name(rollout_id)).open("rb")
    except FileNotFoundError:
        pass
    try:
        file = (directory / (rollout_id + COMPRESSED_SUFFIX)).open("rb")
    except FileNotFoundError:
        return None
    import zstandard

    reader: BinaryIO = zstandard.ZstdDecompressor().stream_reader(
        file, read_across_frames=True, closefd=True
    )
    return reader


def read_lines(
    file: BinaryIO, start_bytes: int = 0, end_bytes: int | None = None
) -> Iterator[Line]:
    """The complete lines that begin in [start, end), in order; a torn last line waits for its newline. Blank lines are skipped.

    `start_bytes` must be the start of a line.
    """
    if start_bytes:
        _skip_to(file, start_bytes)
    position = start_bytes
    rest = b""
    while end_bytes is None or position < end_bytes:
        block = file.read(_READ_BYTES)
        if not block:
            return
        if rest:
            block = rest + block
        at = 0
        loads = orjson.loads
        while (newline := block.find(b"\n", at)) >= 0:
            if end_bytes is not None and position >= end_bytes:
                return
            length = newline + 1 - at
            line = block[at:newline]
            if line.strip():
                try:
                    record = loads(line)
                except orjson.JSONDecodeError:
                    record = None
                yield Line(position, length, record if type(record) is dict else None)
            position += length
            at = newline + 1
        rest = block[at:]


def fingerprint(directory: Path, rollout_id: str) -> str | None:
    """What tells one file of a rollout from the next of the same name: a digest of its first bytes; null without a complete line."""
    file = open_capture(directory, rollout_id)
    if file is None:
        return None
    with file:
        return fingerprint_of(file)


def fingerprint_of(file: BinaryIO) -> str | None:
    """The fingerprint of an opened capture file, which is read from where it stands (its start)."""
    head = b""
    while len(head) < _FINGERPRINT_BYTES:
        block = file.read(_FINGERPRINT_BYTES - len(head))
        if not block:
            break
        head += block
    line, newline, _ = head.partition(b"\n")
    if not newline and len(head) < _FINGERPRINT_BYTES:
        return None
    return blake2b(line, digest_size=8).hexdigest()


def _skip_to(file: BinaryIO, position: int) -> None:
    try:
        file.seek(position)
    except (OSError, ValueError):  # a decompressing reader of an older zstandard
        left = position
        while left > 0 and (block := file.read(min(left, _READ_BYTES))):
            left -= len(block)
