"""What one producer process has seen and could not do: `.otel-gym/producers/<producer>.json`.

The file is replaced as a whole, at most once a second while something changes and every ten seconds as a heartbeat. It is how calls without a rollout
prefix, calls with invalid ids and records that were given up stay visible after the process is gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from otel_gym.capture.identity import HEARTBEAT_S, ProcessIdentity
from otel_gym.capture.layout import Layout
from otel_gym.capture.private_files import read_file, replace_file
from otel_gym.errors import StoreError

MAX_NAMED: Final = 10_000
"""Most ids that are kept by name; beyond it only their number is."""


@dataclass(frozen=True, slots=True)
class LostCall:
    """A call whose record was given up."""

    rollout_id: str
    model_call_id: str
    generation: int
    """Generation of the rollout when the call began; -1 where that was unknown."""
    reason: str
    at: float
    """Unix seconds UTC."""


class ProducerStatus:
    """The status of this process. All methods may be called from any thread; only `flush` does I/O."""

    def __init__(self, layout: Layout, identity: ProcessIdentity, mode: int) -> None:
        self.path = layout.producers / f"{identity.producer}.json"
        self._identity = identity
        self._mode = mode
        self._lock = threading.Lock()
        self._dirty = True
        self._flushed_at = -1e9
        self.unprefixed = 0
        self.invalid_ids: dict[str, int] = {}
        self.invalid_more = 0
        self.unclaimed: dict[str, int] = {}
        self.lost: dict[tuple[str, str], LostCall] = {}
        self.lost_more = 0

    def note_unprefixed(self) -> None:
        with self._lock:
            self.unprefixed += 1
            self._dirty = True

    def note_invalid_id(self, rollout_id: str) -> None:
        with self._lock:
            if rollout_id in self.invalid_ids or len(self.invalid_ids) < MAX_NAMED:
                name = rollout_id[:200]
                self.invalid_ids[name] = self.invalid_ids.get(name, 0) + 1
            else:
                self.invalid_more += 1
            self._dirty = True

    def note_unclaimed(self, rollout_id: str) -> None:
        with self._lock:
            self.unclaimed[rollout_id] = self.unclaimed.get(rollout_id, 0) + 1
            self._dirty = True

    def note_lost(self, call: LostCall) -> None:
        with self._lock:
            if len(self.lost) < MAX_NAMED:
                self.lost[call.rollout_id, call.model_call_id] = call
            else:
                self.lost_more += 1
            self._dirty = True

    def flush(self, begun: int, *, closed: bool = False) -> bool:
        """Write the file if anything is new or a heartbeat is due; whether it was written. Raises `OSError`."""
        now = time.monotonic()
        with self._lock:
            if not self._dirty and not closed and now - self._flushed_at < HEARTBEAT_S:
                return False
            body = orjson.dumps(
                {
                    "schema": 1,
                    "identity": self._identity.as_mapping(),
                    "updated_at": time.time(),
                    "closed": closed,
                    "begun": begun,
                    "unprefixed": self.unprefixed,
                    "invalid_ids": self.invalid_ids,
                    "invalid_more": self.invalid_more,
                    "unclaimed": self.unclaimed,
                    "lost": [asdict(call) for call in self.lost.values()],
                    "lost_more": self.lost_more,
                },
                option=orjson.OPT_NON_STR_KEYS,
            )
            self._dirty = False
        try:
            replace_file(self.path, body + b"\n", self._mode)
        except OSError:
            self._dirty = True
            raise
        self._flushed_at = now
        return True

    def touch(self) -> None:
        """Have the next `flush` write, whatever happened since the last one."""
        self._dirty = True


@dataclass(frozen=True, slots=True)
class StatusRead:
    """A status file as read."""

    identity: ProcessIdentity
    closed: bool
    begun: int
    heartbeat_at: float
    unprefixed: int = 0
    invalid_ids: dict[str, int] = field(default_factory=dict)
    invalid_more: int = 0
    unclaimed: dict[str, int] = field(default_factory=dict)
    lost: tuple[LostCall, ...] = ()
    lost_more: int = 0

    @property
    def alive(self) -> bool:
        """Whether the producer is still at work."""
        return not self.closed and self.identity.is_alive(self.heartbeat_at)


def read_statuses(layout: Layout, unusable: dict[str, str]) -> Iterator[StatusRead]:
    """The status of every producer that ever wrote here; a file that cannot be read or understood goes into `unusable`, by its name, with the reason."""
    for path in sorted(layout.producers.glob("*.json")):
        try:
            yield _read(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            unusable[path.name] = f"cannot be read: {error.strerror}"
        except (StoreError, ValueError, KeyError, TypeError, AttributeError):
            unusable[path.name] = "is no status file"


def _read(path: Path) -> StatusRead:
    heartbeat_at = path.stat().st_mtime
    values: dict[str, Any] = orjson.loads(read_file(path))
    return StatusRead(
        identity=ProcessIdentity.from_mapping(values["identity"]),
        closed=bool(values["closed"]),
        begun=int(values["begun"]),
        heartbeat_at=heartbeat_at,
        unprefixed=int(values["unprefixed"]),
        invalid_ids={str(k): int(v) for k, v in values["invalid_ids"].items()},
        invalid_more=int(values["invalid_more"]),
        unclaimed={str(k): int(v) for k, v in values["unclaimed"].items()},
        lost=tuple(LostCall(**call) for call in values["lost"]),
        lost_more=int(values["lost_more"]),
    )
