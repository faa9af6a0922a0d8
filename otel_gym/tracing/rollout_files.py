"""Rollout records as an exporter sees them: which are new or changed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import orjson

from otel_gym.correlation.rollout_id import is_valid
from otel_gym.counters import count
from otel_gym.tracing.cursors import FileCursor
from otel_gym.tracing.rollout import SUFFIX

_logger = logging.getLogger(__name__)

_SETTLED_S: Final = 3.0
"""For so long after its time stamp was first seen a directory may change again under the same one. Stamps are as coarse as a tick of the kernel, which a
loaded virtual machine lets come late, or as two seconds on some file systems; whose clock they are of is not known either."""
_LONGEST_S: Final = 30.0
"""Longest time between two looks at all files: some changes show in no directory's time stamp, such as that of a file written in place."""
_PAUSE_FACTOR: Final = 10.0
"""A look that took long is followed by a pause of so many times its length."""


class RolloutFiles:
    """The rollout records of one directory, and which of them have reached the backend."""

    def __init__(self, directory: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._done: dict[str, str] = {}
        self._seen: dict[str, tuple[int, ...]] = {}
        self._stamp_ns = -1
        self._stamp_seen_at = 0.0
        self._looked_at = float("-inf")
        self._look_s = 0.0
        self._waiting: dict[str, None] = {}
        self._unreadable: dict[str, str] = {}

    def load(self, cursors: Mapping[str, FileCursor]) -> None:
        """Takes over what a cursor journal says."""
        for name, cursor in cursors.items():
            if name.endswith(SUFFIX):
                self._done[name[: -len(SUFFIX)]] = cursor.fingerprint

    def changed(self, *, at_once: bool = False) -> list[str]:
        """The rollouts whose record has appeared or changed since the last call, or could not be read then.

        Looks at the files only where the directory may have changed, and not so often that it costs much; `at_once` looks in any case. What an `OSError`
        keeps it from telling it tells the next time.
        """
        started_at = self._clock()
        if self._is_due(started_at) or at_once:
            self._look()
            self._looked_at = started_at
            self._look_s = self._clock() - started_at
        found, self._waiting = self._waiting, {}
        return list(found)

    def read(self, rollout_id: str) -> tuple[Mapping[str, Any], bytes] | None:
        """The record and its file's bytes; null where there is none that can be read (counted, and logged once per cause)."""
        try:
            data = (self._directory / (rollout_id + SUFFIX)).read_bytes()
            value = orjson.loads(data)
        except FileNotFoundError:
            return None
        except OSError as error:
            # That may pass without a trace in any time stamp.
            self._waiting[rollout_id] = None
            self._refuse(rollout_id, f"cannot be read: {error.strerror}")
            return None
        except orjson.JSONDecodeError:
            value = None
        if type(value) is not dict:
            self._refuse(rollout_id, "is no JSON object")
            return None
        self._unreadable.pop(rollout_id, None)
        return {**value, "rollout_id": rollout_id}, data

    def is_done(self, rollout_id: str, digest: str) -> bool:
        """Whether this content was exported."""
        return self._done.get(rollout_id) == digest

    def done(self, rollout_id: str, digest: str) -> None:
        """Notes that this content is being exported."""
        self._done[rollout_id] = digest

    def forget(self, rollout_id: str) -> None:
        """Takes back `done`: the export did not succeed."""
        self._done.pop(rollout_id, None)

    def _is_due(self, now: float) -> bool:
        stamp_ns = os.stat(self._directory).st_mtime_ns
        if stamp_ns != self._stamp_ns:
            self._stamp_ns, self._stamp_seen_at = stamp_ns, now
        if now < self._looked_at + self._look_s * _PAUSE_FACTOR:
            return False
        is_settled = self._looked_at >= self._stamp_seen_at + _SETTLED_S
        return not is_settled or now >= self._looked_at + _LONGEST_S

    def _look(self) -> None:
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX):
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                except OSError:
                    state: tuple[int, ...] = ()  # whoever reads it will say why
                else:
                    state = (status.st_mtime_ns, status.st_size, status.st_ino)
                rollout_id = entry.name[: -len(SUFFIX)]
                if self._seen.get(rollout_id) != state and is_valid(rollout_id):
                    self._seen[rollout_id] = state
                    self._waiting[rollout_id] = None

    def _refuse(self, rollout_id: str, cause: str) -> None:
        count("export.failures")
        if self._unreadable.get(rollout_id) != cause:
            self._unreadable[rollout_id] = cause
            _logger.warning("export: %s%s %s", rollout_id, SUFFIX, cause)


def digest_of(data: bytes) -> str:
    """What tells one content of a rollout record from another."""
    return blake2b(data, digest_size=8).hexdigest()
