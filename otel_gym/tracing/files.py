"""Reading capture files by place, as they grow."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import orjson

from otel_gym.capture.source import Source
from otel_gym.correlation.rollout_id import is_valid
from otel_gym.errors import StoreError

CAPTURE_SUFFIX: Final = ".capture.jsonl"
COMPRESSED_SUFFIX: Final = ".capture.jsonl.zst"
_READ_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 512
_CALL_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
_FIRST_CALL: Final = re.compile(rb'\s*\{\s*"model_call_id"\s*:\s*"([A-Za-z0-9_.-]{1,200})"')


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
    """(rollout id, path) of every capture file in `directory`, sorted by rollout; the plain file where there is a compressed twin, too."""
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
    """The captures of a rollout as uncompressed bytes, null where there is no file. Raises `StoreError` for one that cannot be opened."""
    path = directory / record_file_name(rollout_id)
    packed = directory / (rollout_id + COMPRESSED_SUFFIX)
    try:
        plain = _open(path)
    except FileNotFoundError:
        path = packed
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    else:
        if not packed.exists():
            return plain
        # Packed, and written to again: offsets count through both.
        plain.close()
        return io.BufferedReader(_Joined(Source(path, packed, settle=False)), _READ_BYTES)
    try:
        file = _open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    import zstandard

    reader: BinaryIO = zstandard.ZstdDecompressor().stream_reader(
        file, read_across_frames=True, closefd=True
    )
    return reader


def _open(path: Path) -> BinaryIO:
    """A regular file; a link may lead out of the directory, and a pipe never ends. Raises `OSError`, and `StoreError` for anything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{path}: is not a regular file")
    return os.fdopen(descriptor, "rb")


class _Joined(io.RawIOBase):
    """The packed and the plain part of one rollout as one stream of bytes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pieces = source.chunks()
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        taken = min(len(buffer), len(self._rest))
        buffer[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken

    def close(self) -> None:
        self._pieces.close()
        self._source.close()
        super().close()


def read_lines(
    file: BinaryIO, start_bytes: int = 0, end_bytes: int | None = None
) -> Iterator[Line]:
    """The complete lines that begin in [start, end), in order; a torn last line waits for its newline. Blank lines are skipped.

    `start_bytes` must be the start of a line.
    """
    if start_bytes:
        _skip_to(file, start_bytes)
    position = start_bytes
    rest: list[bytes] = []
    while end_bytes is None or position < end_bytes:
        block = file.read(_READ_BYTES)
        if not block:
            return
        if rest:
            # Joined only when the line ends, so that one of many blocks costs no more a byte than others.
            rest.append(block)
            if b"\n" not in block:
                continue
            block = b"".join(rest)
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
        rest = [block[at:]] if at < len(block) else []


def fingerprint(directory: Path, rollout_id: str) -> str | None:
    """What tells one file of a rollout from the next of the same name: a digest of its first call's id; null without a record."""
    file = open_capture(directory, rollout_id)
    if file is None:
        return None
    with file:
        return fingerprint_of(file)


def fingerprint_of(file: BinaryIO) -> str | None:
    """The fingerprint of an opened capture file, which is read from where it stands (its start)."""
    head = file.read(_HEAD_BYTES)
    match = _FIRST_CALL.match(head)
    if match is not None:
        return fingerprint_by(match[1].decode())
    while not (line := head.lstrip()).partition(b"\n")[1]:
        block = file.read(_READ_BYTES)
        if not block:
            return None
        head += block
    line = line.partition(b"\n")[0]
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        record = None
    call_id = record.get("model_call_id") if type(record) is dict else None
    return (type(call_id) is str and fingerprint_by(call_id)) or _digest(line[:_HEAD_BYTES])


def fingerprint_by(call_id: object) -> str | None:
    """The fingerprint of a file whose first record is the call `call_id`; null for an id of an unusual form."""
    if type(call_id) is not str or _CALL_ID.fullmatch(call_id) is None:
        return None
    return _digest(call_id.encode())


def holds_call(
    directory: Path, rollout_id: str, offset_bytes: int, length_bytes: int, call_id: str
) -> bool:
    """Whether the line at `offset_bytes` of a plain capture file is that of the call."""
    try:
        with (directory / record_file_name(rollout_id)).open("rb") as file:
            file.seek(offset_bytes)
            return call_id.encode("utf-8", "replace") in file.read(length_bytes)
    except OSError:
        return False


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def _skip_to(file: BinaryIO, position: int) -> None:
    try:
        file.seek(position)
    except (OSError, ValueError):  # a decompressing reader of an older zstandard
        left = position
        while left > 0 and (block := file.read(min(left, _READ_BYTES))):
            left -= len(block)
