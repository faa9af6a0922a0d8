"""One history as bytes: `snapshot` and `restore`.

Layout, all integers little endian; `docs/replay.md` describes it in full:

    header, 64 bytes   magic (8), version u32, zero u32, index bytes u64, total bytes u64, index SHA-256 (32)
    index              JSON: entries in order, their sections and columns
    sections           JSON heads, messages and columns, each at a multiple of 64 bytes, zeros between

Each section has its SHA-256 in the index, the index has its own in the header, and the gaps must be zero,
so any changed byte is found. Columns are views into the given bytes (a memory map, for one), never copies.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from otel_gym.replay.column_making import array_of
from otel_gym.replay.columns import Array
from otel_gym.replay.errors import (
    CaptureError,
    ContainerError,
    DamagedContainer,
    TruncatedContainer,
    UnsupportedContainer,
)
from otel_gym.replay.json_values import dump_json, load_json
from otel_gym.replay.native import NativeItems
from otel_gym.replay.prompt_chain import PromptChain
from otel_gym.replay.turn import Turn, turn_from_description

HistoryEntry: TypeAlias = Turn | dict[str, Any]
"""A turn of the policy, or a plain message, tool output or item written by somebody else."""

CONTAINER_VERSION: Final = 1

_MAGIC: Final = b"OTGHIST\0"
_HEADER: Final = struct.Struct("<8sIIQQ32s")
_ALIGN: Final = 64


def snapshot(history: Sequence[HistoryEntry]) -> bytes:
    """The history as one container; `CaptureError` where an entry has no JSON value."""
    sections = _Sections()
    chain = PromptChain()
    entries: list[dict[str, Any]] = []
    for index, entry in enumerate(history):
        try:
            if isinstance(entry, Turn):
                entries.append(_write_turn(entry, chain, sections))
            else:
                entries.append({"message": sections.add(dump_json(entry))})
        except ValueError as error:
            raise CaptureError(f"history[{index}]: {error}") from error
    body = dump_json({"entries": entries})
    start = _aligned(_HEADER.size + len(body))
    total = start + sections.size
    header = _HEADER.pack(
        _MAGIC, CONTAINER_VERSION, 0, len(body), total, hashlib.sha256(body).digest()
    )
    padding = bytes(start - _HEADER.size - len(body))
    return b"".join([header, body, padding, *sections.pieces])


def restore(data: bytes | bytearray | memoryview | mmap.mmap) -> list[HistoryEntry]:
    """The history of a container. Everything is verified first; columns stay views into `data`.

    Raises `TruncatedContainer`, `DamagedContainer` or `UnsupportedContainer`.
    """
    view = memoryview(data).toreadonly().cast("B")
    reader = _Reader(view)
    chain = PromptChain()
    history: list[HistoryEntry] = []
    for index, entry in enumerate(reader.entries):
        try:
            if "message" in entry:
                history.append(load_json(bytes(reader.section(entry["message"]))))
            else:
                history.append(_read_turn(entry, chain, reader))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedContainer(
                f"cannot be read: {error}", where=f"entry {index}", offset_bytes=_HEADER.size
            ) from error
    return history


def restore_file(path: str | Path) -> list[HistoryEntry]:
    """The history of a container file, memory-mapped: columns are read from disk when they are wanted."""
    with open(path, "rb") as file:
        if not file.seek(0, 2):
            raise TruncatedContainer("the file is empty", where="header", offset_bytes=0)
        return restore(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _write_turn(turn: Turn, chain: PromptChain, sections: _Sections) -> dict[str, Any]:
    entry: dict[str, Any] = {"turn": turn.description(), "digest": turn.digest}
    native = turn.native_items
    if native is not None:
        entry["head"] = sections.add(native.head)
        entry["mark"] = native.mark
        entry["columns"] = [
            stored.description() | sections.add(stored.data, stored.stored_digest)
            for stored in chain.stored(turn)
        ]
    return entry


def _read_turn(entry: dict[str, Any], chain: PromptChain, reader: _Reader) -> Turn:
    native = None
    if "head" in entry:
        described = entry["columns"]
        columns = chain.read(described, [reader.array(column) for column in described])
        native = NativeItems.stored(bytes(reader.section(entry["head"])), entry["mark"], columns)
    return turn_from_description(entry["turn"], native, digest=entry["digest"])


class _Sections:
    """The sections of a container being written, with their padding."""

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self.size = 0

    def add(self, data: bytes | Array, digest: str | None = None) -> dict[str, Any]:
        """Where the section will be, counted from the first one, and its digest."""
        view = memoryview(data if isinstance(data, bytes) else np.ascontiguousarray(data).data)
        view = view.cast("B")
        place: dict[str, Any] = {"at": self.size, "bytes": view.nbytes}
        if digest is None:
            place["digest"] = hashlib.sha256(view).hexdigest()
        padding = _aligned(view.nbytes) - view.nbytes
        self.pieces += (view, bytes(padding))
        self.size += view.nbytes + padding
        return place


class _Reader:
    """A container being read: its header, index and every section verified on construction."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        index_bytes = self._read_header()
        body = view[_HEADER.size : _HEADER.size + index_bytes]
        self._start = _aligned(_HEADER.size + index_bytes)
        if self._start > view.nbytes:
            raise TruncatedContainer("the index ends early", where="index", offset_bytes=64)
        if hashlib.sha256(body).digest() != self._index_digest:
            raise DamagedContainer("the digest differs", where="index", offset_bytes=64)
        try:
            self.entries: list[dict[str, Any]] = load_json(bytes(body))["entries"]
            self._verify()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedContainer(
                f"cannot be read: {error}", where="index", offset_bytes=64
            ) from error

    def _read_header(self) -> int:
        view = self._view
        magic = bytes(view[:8])
        if magic != _MAGIC:
            if view.nbytes < 8 and _MAGIC.startswith(magic):
                raise TruncatedContainer("ends inside the header", where="header", offset_bytes=0)
            raise UnsupportedContainer("not a history snapshot", where="header", offset_bytes=0)
        if view.nbytes < _HEADER.size:
            raise TruncatedContainer("ends inside the header", where="header", offset_bytes=0)
        _, version, zero, index_bytes, total, self._index_digest = _HEADER.unpack_from(view)
        if version > CONTAINER_VERSION:
            raise UnsupportedContainer(
                f"version {version} is newer than {CONTAINER_VERSION}; update otel-gym to read it",
                where="header",
                offset_bytes=8,
            )
        if version != CONTAINER_VERSION or zero:
            raise DamagedContainer("no such version", where="header", offset_bytes=8)
        if total > view.nbytes:
            raise TruncatedContainer(
                f"{view.nbytes} of {total} bytes are there", where="end", offset_bytes=view.nbytes
            )
        if total < view.nbytes:
            raise DamagedContainer("bytes follow the end", where="end", offset_bytes=total)
        return int(index_bytes)

    def _verify(self) -> None:
        """Check every section and every gap, in the order they lie in."""
        position = self._start
        self._check_gap(_HEADER.size + self._index_bytes, position)
        for index, entry in enumerate(self.entries):
            for name, place, digest in _places(entry):
                where = f"entry {index}: {name}"
                start, end = self._start + place["at"], self._start + place["at"] + place["bytes"]
                if start != position or end > self._view.nbytes:
                    raise DamagedContainer("out of place", where=where, offset_bytes=position)
                if hashlib.sha256(self._view[start:end]).hexdigest() != digest:
                    raise DamagedContainer("the digest differs", where=where, offset_bytes=start)
                position = self._start + _aligned(place["at"] + place["bytes"])
                self._check_gap(end, position)
        if position != self._view.nbytes:
            raise DamagedContainer("out of place", where="end", offset_bytes=position)

    @property
    def _index_bytes(self) -> int:
        return int(_HEADER.unpack_from(self._view)[3])

    def _check_gap(self, start: int, end: int) -> None:
        if any(self._view[start:end]):
            raise DamagedContainer("not zero", where="padding", offset_bytes=start)

    def section(self, place: dict[str, Any]) -> memoryview:
        start = self._start + place["at"]
        return self._view[start : start + place["bytes"]]

    def array(self, place: dict[str, Any]) -> Array:
        return array_of(place["dtype"], self.section(place))


def _places(entry: dict[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    """The sections of an entry in the order they lie in: name, place and digest of the stored bytes."""
    if "message" in entry:
        return [("message", entry["message"], entry["message"]["digest"])]
    if "head" not in entry:
        return []
    columns = [
        (f"column {column['field']}", column, column.get("stored_digest", column["digest"]))
        for column in entry["columns"]
    ]
    return [("head", entry["head"], entry["head"]["digest"]), *columns]


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


__all__ = [
    "CONTAINER_VERSION",
    "ContainerError",
    "HistoryEntry",
    "restore",
    "restore_file",
    "snapshot",
]
