"""Packing: a closed rollout's file becomes `<rollout_id>.capture.jsonl.zst`, and the original goes once that is proven to hold the same bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import zstandard

from otel_gym.capture.locks import Lock, lock, unlock
from otel_gym.capture.open_files import sync_directory
from otel_gym.capture.packed import PackFacts, encode_trailer
from otel_gym.capture.private_files import is_at, set_mode
from otel_gym.capture.source import HEAD_BYTES, Source, repeats_pack
from otel_gym.capture.store import CaptureStore
from otel_gym.errors import StoreError

FRAME_BYTES: Final = 4 * 1024 * 1024
"""Uncompressed length at which a frame ends, at the next line's end."""
LONGEST_FRAME_BYTES: Final = 64 * 1024 * 1024
"""Uncompressed length at which a frame ends in the middle of a line."""
DEFAULT_IDLE_S: Final = 60.0
_LOCK_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class PackOutcome:
    """What became of one rollout."""

    rollout_id: str
    state: str
    """`packed`, `already packed`, or `open` where calls are pending or it changed lately."""
    plain_bytes: int = 0
    packed_bytes: int = 0


def pack_rollout(
    store: CaptureStore, rollout_id: str, *, idle_s: float = DEFAULT_IDLE_S, level: int = 9
) -> PackOutcome:
    """Pack one rollout that nobody writes any more.

    It is left open where a living producer has a call of it pending, where it ends in a torn line, or where it changed in the last `idle_s` seconds. The
    file is locked meanwhile; a record that comes later starts a new plain file, and every reader takes both. Raises `StoreError` or `OSError`; then the
    original is untouched.
    """
    records, packed = store.path_for(rollout_id), store.packed_path_for(rollout_id)
    try:
        descriptor = os.open(records, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return PackOutcome(rollout_id, "already packed" if packed.exists() else "open")
    held = Lock.BUSY
    try:
        held = lock(descriptor, _LOCK_TIMEOUT_S)
        found = os.fstat(descriptor)
        if not is_at(records, descriptor):
            # Cleared or packed meanwhile: what stands there now is not locked.
            return PackOutcome(rollout_id, "open")
        if held is not Lock.HELD or time.time() - found.st_mtime < idle_s:
            return PackOutcome(rollout_id, "open", found.st_size)
        if any(call.alive and not call.stale for call in store.pending(rollout_id)):
            return PackOutcome(rollout_id, "open", found.st_size)
        if found.st_size and os.pread(descriptor, 1, found.st_size - 1) != b"\n":
            return PackOutcome(rollout_id, "open", found.st_size)
        packed_bytes = _pack(store, records, packed, descriptor, found.st_size, level)
        return PackOutcome(rollout_id, "packed", found.st_size, packed_bytes)
    finally:
        if held is Lock.HELD:
            unlock(descriptor)
        os.close(descriptor)


def _pack(
    store: CaptureStore, records: Path, packed: Path, descriptor: int, size: int, level: int
) -> int:
    """Length of the packed file, which holds everything now; the plain one is gone."""
    with Source(records, packed, settle=False) as source:
        if (
            source.facts is not None
            and repeats_pack(source.facts, descriptor, size)
            and (source.facts.plain_bytes == size)
        ):
            _verify(packed, source.facts.sha256)  # an earlier pack was interrupted before this
        else:
            # Under the lock nobody else is at work; what a pack that was killed has left is written over.
            temporary = packed.with_name(f".{packed.name}.tmp")
            try:
                digest = _compress(store, source, temporary, descriptor, size, level)
                _verify(temporary, digest)
                os.replace(temporary, packed)
                sync_directory(store.root)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
    packed_bytes = packed.stat().st_size
    # Not synced: where a power failure brings it back, it holds what the pack holds, and readers count that once.
    os.unlink(records)
    return packed_bytes


def _compress(
    store: CaptureStore, source: Source, temporary: Path, descriptor: int, size: int, level: int
) -> str:
    digest = hashlib.sha256()
    frames = []
    target = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW,
        store.file_mode,
    )
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
    total = 0
    with os.fdopen(target, "wb") as file:
        set_mode(file.fileno(), store.file_mode)
        for block in _frames(source):
            digest.update(block)
            frame = compressor.compress(block)
            file.write(frame)
            frames.append((len(frame), len(block)))
            total += len(block)
        head = os.pread(descriptor, min(HEAD_BYTES, size), 0)
        facts = PackFacts(
            length_bytes=total,
            sha256=digest.hexdigest(),
            plain_bytes=size,
            plain_head_sha256=hashlib.sha256(head).hexdigest(),
            frames=tuple(frames),
        )
        file.write(encode_trailer(facts))
        file.flush()
        os.fsync(file.fileno())
    return facts.sha256


def _frames(source: Source) -> Iterator[bytes]:
    """The bytes in blocks that end at line ends, but for lines that are longer than a frame may be."""
    block = bytearray()
    for chunk in source.chunks(min(FRAME_BYTES, 1 << 20)):
        searched = len(block) if len(block) >= FRAME_BYTES else 0
        block += chunk
        if len(block) >= FRAME_BYTES:
            end = block.rfind(b"\n", searched) + 1
            if not end and len(block) >= LONGEST_FRAME_BYTES:
                end = len(block)
            if end:
                yield bytes(block[:end])
                del block[:end]
    if block:
        yield bytes(block)


def _verify(packed: Path, expected_sha256: str) -> None:
    """Read the packed file back from the disk. Raises `StoreError` where it does not hold the expected bytes."""
    digest = hashlib.sha256()
    with packed.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for piece in decompressed(file):
            digest.update(piece)
    if digest.hexdigest() != expected_sha256:
        raise StoreError(
            f"{packed}: does not hold the bytes that were packed; the original is kept"
        )


def decompressed(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of a packed file, in pieces."""
    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    try:
        while piece := reader.read(1 << 20):
            yield piece
    except zstandard.ZstdError as error:
        raise StoreError(f"{getattr(file, 'name', 'packed file')}: damaged: {error}") from error
