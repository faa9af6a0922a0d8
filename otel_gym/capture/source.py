"""The lines of one rollout, packed and plain, as one sequence of bytes."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson
import zstandard

from otel_gym.capture.locks import Lock, lock, unlock
from otel_gym.capture.packed import PackFacts, read_facts
from otel_gym.errors import StoreError

HEAD_BYTES: Final = 4096
_BUFFER_BYTES: Final = 1 << 20
_LOCK_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One line that is not blank."""

    number: int
    """Position among the lines that are not blank, from 0."""
    offset_bytes: int
    """Where it begins: in the plain file, after the uncompressed length of the packed one where there is one."""
    length_bytes: int
    """Its length with the newline."""
    record: dict[str, Any] | None
    """The JSON object; null where the line is none."""
    reason: str | None = None
    """Why it is no record; null where it is one."""


def read_lines(records: Path, packed: Path, *, start: int = 0) -> Iterator[RecordLine]:
    """All lines that were whole when the reading began, in constant memory; `number` counts from the first one read.

    `start` is an offset that a line begins at. A missing file has no lines. Raises `StoreError` for a packed file that cannot be read, else `OSError`.
    """
    number = 0
    with Source(records, packed) as source:
        for offset, line in source.lines(start):
            if not line.strip():
                continue
            yield _decode(number, offset, line)
            number += 1


def _decode(number: int, offset: int, line: bytes) -> RecordLine:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        reason = "is torn" if not line.endswith(b"\n") else f"is not JSON: {error}"
        return RecordLine(number, offset, len(line), None, reason)
    if not isinstance(value, dict):
        return RecordLine(number, offset, len(line), None, "is not a JSON object")
    return RecordLine(number, offset, len(line), value)


class Source:
    """The open files of one rollout. A context manager; what is appended after it was made is not seen."""

    def __init__(self, records: Path, packed: Path, *, settle: bool = True) -> None:
        """`settle` waits for an append in progress; without it the caller holds the lock."""
        # The plain file is opened first: a pack that finishes in between leaves its bytes in both, never in neither.
        self._plain = _open(records)
        self._packed: int | None = None
        self.facts: PackFacts | None = None
        self.plain_bytes = 0
        try:
            self._packed = _open(packed)
            if self._plain is not None:
                self.plain_bytes = (
                    _settled_size(self._plain) if settle else os.fstat(self._plain).st_size
                )
            if self._packed is not None:
                self.facts = read_facts(self._packed, packed)
                if self._plain is not None and repeats_pack(
                    self.facts, self._plain, self.plain_bytes
                ):
                    self._skip = self.facts.plain_bytes
                else:
                    self._skip = 0
            else:
                self._skip = 0
        except BaseException:
            self.close()
            raise

    @property
    def base(self) -> int:
        """Uncompressed length of the packed part."""
        return self.facts.length_bytes if self.facts else 0

    @property
    def length_bytes(self) -> int:
        """Length of packed and plain part together."""
        return self.base + self.plain_bytes - self._skip

    @property
    def plain_base(self) -> int:
        """What is added to an offset in the plain file to make it one of the whole."""
        return self.base - self._skip

    def lines(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """(offset, line) of every line from `start`; the last may lack its newline."""
        if self._packed is not None and start < self.base:
            yield from self._packed_lines(start)
        if self._plain is not None:
            yield from self._plain_lines(max(0, start - self.base))

    def chunks(self, most_bytes: int = _BUFFER_BYTES) -> Generator[bytes, None, None]:
        """All bytes, in pieces of at most `most_bytes`."""
        for stream, left in self._streams():
            while left > 0 and (piece := stream.read(min(left, most_bytes))):
                left -= len(piece)
                yield piece

    def read(self, offset: int, length: int) -> bytes:
        """The bytes at an offset; fewer where there are not so many."""
        if offset < self.base:
            for _, data in self._packed_lines(offset):
                return data[:length]
            return b""
        if self._plain is None:
            return b""
        return os.pread(self._plain, length, offset - self.base + self._skip)

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self._plain, self._packed):
            if descriptor is not None:
                os.close(descriptor)
        self._plain = self._packed = None

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _streams(self) -> Iterator[tuple[BinaryIO, int]]:
        if self._packed is not None:
            with os.fdopen(os.dup(self._packed), "rb") as file:
                file.seek(0)
                yield _decompressed(file), self.base
        if self._plain is not None:
            with os.fdopen(os.dup(self._plain), "rb") as file:
                file.seek(self._skip)
                yield file, self.plain_bytes - self._skip

    def _packed_lines(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Lines of the packed part, from the frame that `start` lies in."""
        assert self._packed is not None and self.facts is not None
        at, offset = 0, 0
        for compressed, uncompressed in self.facts.frames:
            if offset + uncompressed > start:
                break
            at, offset = at + compressed, offset + uncompressed
        with os.fdopen(os.dup(self._packed), "rb") as file:
            file.seek(at)
            stream = io.BufferedReader(_decompressed(file), _BUFFER_BYTES)  # type: ignore[type-var]
            stream.read(start - offset)
            offset = start
            while line := stream.readline():
                yield offset, line
                offset += len(line)

    def _plain_lines(self, start: int) -> Iterator[tuple[int, bytes]]:
        assert self._plain is not None
        position = self._skip + start
        with os.fdopen(os.dup(self._plain), "rb", buffering=_BUFFER_BYTES) as file:
            file.seek(position)
            while position < self.plain_bytes:
                line = file.readline(self.plain_bytes - position)
                if not line:
                    return
                yield self.base + position - self._skip, line
                position += len(line)


def repeats_pack(facts: PackFacts, descriptor: int, size: int) -> bool:
    """Whether a plain file is the one that was packed last: a crash came between the pack and its removal."""
    if not facts.plain_bytes or size < facts.plain_bytes:
        return False
    head = os.pread(descriptor, min(HEAD_BYTES, facts.plain_bytes), 0)
    return hashlib.sha256(head).hexdigest() == facts.plain_head_sha256


def _decompressed(file: BinaryIO) -> BinaryIO:
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)


def _open(path: Path) -> int | None:
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        )
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{path}: is not a regular file")
    return descriptor


def _settled_size(descriptor: int) -> int:
    """Length of the file with no append in progress; appends only ever add, so what is before it stays."""
    held = lock(descriptor, _LOCK_TIMEOUT_S, shared=True)
    try:
        return os.fstat(descriptor).st_size
    finally:
        if held is Lock.HELD:
            unlock(descriptor)
