"""Where each call's record stands: `.otel-gym/index/<rollout_id>.json`, built on demand and always checked.

The index is a convenience that can be deleted at any time. It remembers how far the file was read, so that a grown file costs only its new part; and an
answer is checked against the line itself before it is given, so that a wrong index costs a rebuild and never a wrong answer.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from otel_gym.capture.open_files import make_directories
from otel_gym.capture.private_files import read_file, replace_file
from otel_gym.capture.source import Source
from otel_gym.errors import StoreError

if TYPE_CHECKING:
    from otel_gym.capture.store import CaptureStore


@dataclass(frozen=True, slots=True)
class Entry:
    """The place of one record, and the record."""

    offset_bytes: int
    length_bytes: int
    record: dict[str, Any]


@dataclass(slots=True)
class _Index:
    end: int
    """Offset up to which the file was read; the next line begins there."""
    places: dict[str, tuple[int, int]]


def find(store: CaptureStore, rollout_id: str, model_call_id: str) -> Entry | None:
    """The record of a call, the first where an id stands twice; null where there is none. Raises `StoreError` or `OSError`."""
    path = store.layout.index / f"{rollout_id}.json"
    for index in (_load(path), _Index(0, {})):
        with Source(store.path_for(rollout_id), store.packed_path_for(rollout_id)) as source:
            if index.end < source.length_bytes:
                _extend(store, rollout_id, index)
                _save(store, path, index)
            place = index.places.get(model_call_id)
            entry = None if place is None else _check(source, place, model_call_id)
        if entry is not None:
            return entry
    return None


def _check(source: Source, place: tuple[int, int], model_call_id: str) -> Entry | None:
    offset, length = place
    if offset + length > source.length_bytes:
        return None
    data = source.read(offset, length)
    if len(data) != length:
        return None
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict) or record.get("model_call_id") != model_call_id:
        return None
    return Entry(offset, length, record)


def _extend(store: CaptureStore, rollout_id: str, index: _Index) -> None:
    for line in store.iter_lines(rollout_id, start=index.end):
        if line.reason == "is torn":
            break
        index.end = line.offset_bytes + line.length_bytes
        if line.record is not None:
            name = line.record.get("model_call_id")
            if isinstance(name, str):
                index.places.setdefault(name, (line.offset_bytes, line.length_bytes))


def _load(path: Path) -> _Index:
    try:
        values = orjson.loads(read_file(path))
        return _Index(
            _length(values["end"]),
            {
                str(name): (_length(offset), _length(length))
                for name, (offset, length) in values["places"].items()
            },
        )
    except (OSError, StoreError, ValueError, KeyError, TypeError, AttributeError):
        return _Index(0, {})


def _length(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError
    return value


def _save(store: CaptureStore, path: Path, index: _Index) -> None:
    body = orjson.dumps({"schema": 1, "end": index.end, "places": index.places})
    with contextlib.suppress(OSError, StoreError):  # a directory that can only be read has no index
        make_directories(store.layout, store.directory_mode)
        replace_file(path, body + b"\n", store.file_mode)
