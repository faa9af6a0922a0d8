"""The bytes of one body, kept as they pass: whole up to a bound, then the head and the tail."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator

_BLOCK_CHUNKS = 1024
_BLOCK_BYTES = 256 * 1024
_UNHASHED_BYTES = 1024 * 1024
"""Bodies up to this size are never hashed; larger ones as they grow, so that a cut costs no pause."""


class BodyTape:
    """Keeps at most `max_bytes` of a body, plus its size, and once it is cut its SHA-256.

    Small chunks are joined into blocks as they come, so that memory is bounded whatever the chunking.
    """

    __slots__ = (
        "_blocks",
        "_chunks",
        "_chunks_bytes",
        "_hash",
        "_hashed",
        "_head",
        "_kept_bytes",
        "max_bytes",
        "size_bytes",
    )

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        """Bytes appended so far, kept or not."""
        self._head: bytes | None = None
        self._blocks: deque[bytes] = deque()
        self._chunks: list[bytes] = []
        self._chunks_bytes = 0
        self._kept_bytes = 0
        self._hash: hashlib._Hash | None = None
        self._hashed = 0

    @property
    def cut(self) -> bool:
        """Whether the body was larger than the bound."""
        return self._head is not None

    @property
    def digest(self) -> str | None:
        """Hexadecimal SHA-256 of the whole body where it is cut, else null."""
        if self._head is None:
            return None
        self._close()
        return self._hasher().hexdigest()

    @property
    def head_bytes(self) -> int:
        """Bytes kept from the beginning: all of them where the body is not cut."""
        return self.size_bytes if self._head is None else len(self._head)

    @property
    def tail_bytes(self) -> int:
        """Bytes kept from the end of a cut body, else 0."""
        return 0 if self._head is None else min(self._tail_limit, self.size_bytes - len(self._head))

    def append(self, chunk: bytes) -> None:
        """Take the next bytes; a list append in nearly all cases."""
        self._chunks.append(chunk)
        size = len(chunk)
        self.size_bytes += size
        self._chunks_bytes += size
        if (
            self._chunks_bytes >= _BLOCK_BYTES
            or len(self._chunks) >= _BLOCK_CHUNKS
            or (self.size_bytes > self.max_bytes and self._head is None)
        ):
            self._close()

    def chunks(self) -> Iterator[bytes]:
        """The kept bytes in order; of a cut body the head, then the tail."""
        if self._head is None:
            yield from self._blocks
            yield from self._chunks
        else:
            yield self._head
            yield self.tail()

    def data(self) -> bytes:
        """The kept bytes; of a cut body the head followed by the tail."""
        if len(self._chunks) == 1 and not self._blocks and self._head is None:
            return bytes(self._chunks[0])
        return b"".join(self.chunks())

    def head(self) -> bytes:
        """The bytes kept from the beginning."""
        return self.data() if self._head is None else self._head

    def tail(self) -> bytes:
        """The bytes kept from the end of a cut body; empty where it is not cut."""
        if self._head is None:
            return b""
        kept = b"".join((*self._blocks, *self._chunks))
        return kept[len(kept) - self.tail_bytes :]

    @property
    def _tail_limit(self) -> int:
        return self.max_bytes - self.max_bytes // 2

    def _close(self) -> None:
        """Make a block of the open chunks."""
        if self._chunks:
            block = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            self._chunks = []
            self._chunks_bytes = 0
            self._blocks.append(block)
            self._kept_bytes += len(block)
            if self._head is not None:
                self._hasher().update(block)
        if self._head is None:
            if self.size_bytes <= self.max_bytes:
                if self.size_bytes > _UNHASHED_BYTES:
                    self._hash_blocks()
                return
            self._hash_blocks()
            kept = b"".join(self._blocks)
            self._head = kept[: self.max_bytes // 2]
            rest = kept[len(self._head) :]
            self._blocks = deque(
                rest[start : start + _BLOCK_BYTES] for start in range(0, len(rest), _BLOCK_BYTES)
            )
            self._kept_bytes = len(rest)
        self._drop()

    def _hasher(self) -> hashlib._Hash:
        if self._hash is None:
            self._hash = hashlib.sha256()
        return self._hash

    def _hash_blocks(self) -> None:
        for position in range(self._hashed, len(self._blocks)):
            self._hasher().update(self._blocks[position])
        self._hashed = len(self._blocks)

    def _drop(self) -> None:
        """Let go of what lies between the head and the tail."""
        limit = self._tail_limit
        while self._blocks and self._kept_bytes - len(self._blocks[0]) >= limit:
            self._kept_bytes -= len(self._blocks.popleft())
