"""The shape of a packed capture file: zstd frames that begin at line starts, and a seek table.

    frame*  skippable frame 0x184D2A5D: JSON facts of the pack  skippable frame 0x184D2A5E: seek table

The seek table is that of the zstd seekable format (https://github.com/facebook/zstd/blob/dev/contrib/seekable_format/zstd_seekable_compression_format.md);
any zstd tool reads the file as one stream.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from otel_gym.errors import StoreError

FACTS_MAGIC: Final = 0x184D2A5D
SEEK_TABLE_MAGIC: Final = 0x184D2A5E
SEEKABLE_MAGIC: Final = 0x8F92EAB1
_FOOTER: Final = struct.Struct("<IBI")
_ENTRY: Final = struct.Struct("<II")
_HEADER: Final = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class PackFacts:
    """What a pack was made from."""

    length_bytes: int
    """Uncompressed length of all frames."""
    sha256: str
    """Digest of the uncompressed bytes."""
    plain_bytes: int
    """Length of the plain file that was packed last."""
    plain_head_sha256: str
    """Digest of that file's first 4,096 bytes, to know it again where a crash left it beside the pack."""
    frames: tuple[tuple[int, int], ...]
    """(compressed, uncompressed) length of each frame, in order."""


def encode_trailer(facts: PackFacts) -> bytes:
    """The two skippable frames that end a packed file."""
    body = orjson.dumps(
        {
            "length_bytes": facts.length_bytes,
            "sha256": facts.sha256,
            "plain_bytes": facts.plain_bytes,
            "plain_head_sha256": facts.plain_head_sha256,
        }
    )
    described = _HEADER.pack(FACTS_MAGIC, len(body)) + body
    # The facts are an entry of the table too, with nothing in it, as the format wants every frame listed.
    entries = [*facts.frames, (len(described), 0)]
    table = b"".join(_ENTRY.pack(*entry) for entry in entries)
    footer = _FOOTER.pack(len(entries), 0, SEEKABLE_MAGIC)
    return described + _HEADER.pack(SEEK_TABLE_MAGIC, len(table) + len(footer)) + table + footer


def read_facts(descriptor: int, path: Path) -> PackFacts:
    """The facts at the end of an open packed file. Raises `StoreError` where it is not one of ours, else `OSError`."""
    size = os.fstat(descriptor).st_size
    try:
        if size < _FOOTER.size:
            raise ValueError
        count, _, magic = _FOOTER.unpack(os.pread(descriptor, _FOOTER.size, size - _FOOTER.size))
        if magic != SEEKABLE_MAGIC:
            raise ValueError
        table_start = size - _FOOTER.size - count * _ENTRY.size
        if table_start < 0:
            raise ValueError
        table = os.pread(descriptor, count * _ENTRY.size, table_start)
        frames = [_ENTRY.unpack_from(table, i * _ENTRY.size) for i in range(count)]
        described_bytes = frames[-1][0]
        if described_bytes > table_start - _HEADER.size:
            raise ValueError
        described = os.pread(
            descriptor, described_bytes, table_start - _HEADER.size - described_bytes
        )
        values = orjson.loads(described[_HEADER.size :])
        return PackFacts(
            length_bytes=int(values["length_bytes"]),
            sha256=str(values["sha256"]),
            plain_bytes=int(values["plain_bytes"]),
            plain_head_sha256=str(values["plain_head_sha256"]),
            frames=tuple((frame[0], frame[1]) for frame in frames[:-1]),
        )
    except (ValueError, KeyError, TypeError, IndexError, struct.error, OverflowError) as error:
        raise StoreError(f"{path}: is not a capture file packed by otel-gym") from error
