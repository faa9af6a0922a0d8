"""Rollout records as an exporter sees them: which are new or changed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import orjson

from otel_gym.correlation.rollout_id import is_valid
from otel_gym.counters import count
from otel_gym.tracing.cursors import FileCursor
from otel_gym.tracing.rollout import SUFFIX

_SETTLED_NS: Final = 100_000_000
"""A directory touched within this time may change again under the same time stamp."""


class RolloutFiles:
    """The rollout records of one directory, and which of them have reached the backend."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._done: dict[str, str] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self._scanned_ns = -1

    def load(self, cursors: Mapping[str, FileCursor]) -> None:
        """Takes over what a cursor journal says."""
        for name, cursor in cursors.items():
            if name.endswith(SUFFIX):
                self._done[name[: -len(SUFFIX)]] = cursor.fingerprint

    def changed(self) -> list[str]:
        """The rollouts whose record has appeared or changed since the last call; looks only where the directory itself has changed."""
        stamp = os.stat(self._directory).st_mtime_ns
        if stamp == self._scanned_ns:
            return []
        self._scanned_ns = stamp if time.time_ns() - stamp > _SETTLED_NS else -1
        found: list[str] = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX):
                    continue
                rollout_id = entry.name[: -len(SUFFIX)]
                if not is_valid(rollout_id):
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                state = (status.st_mtime_ns, status.st_size)
                if self._seen.get(rollout_id) != state:
                    self._seen[rollout_id] = state
                    found.append(rollout_id)
        return found

    def read(self, rollout_id: str) -> tuple[Mapping[str, Any], bytes] | None:
        """The record and its file's bytes; null where there is none that can be read (counted)."""
        try:
            data = (self._directory / (rollout_id + SUFFIX)).read_bytes()
            value = orjson.loads(data)
        except FileNotFoundError:
            return None
        except (OSError, orjson.JSONDecodeError):
            count("export.failures")
            return None
        if type(value) is not dict:
            count("export.failures")
            return None
        return {**value, "rollout_id": rollout_id}, data

    def is_done(self, rollout_id: str, digest: str) -> bool:
        """Whether this content was exported."""
        return self._done.get(rollout_id) == digest

    def done(self, rollout_id: str, digest: str) -> None:
        """Notes that this content is being exported."""
        self._done[rollout_id] = digest


def digest_of(data: bytes) -> str:
    """What tells one content of a rollout record from another."""
    return blake2b(data, digest_size=8).hexdigest()
