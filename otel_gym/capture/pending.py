"""The calls that all producers of a directory have begun and not settled."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from otel_gym.capture.claims import ClaimsRead, parse_claims, read_claims
from otel_gym.capture.fence import read_generation
from otel_gym.capture.layout import Layout
from otel_gym.capture.private_files import read_file
from otel_gym.errors import StoreError

_TORN_READS: Final = 4


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that was begun and is not recorded yet."""

    rollout_id: str
    model_call_id: str
    generation: int
    started_at: float
    """Unix seconds UTC."""
    producer: str
    alive: bool
    """Whether its producer still lives; the call of a dead one will never be recorded."""
    stale: bool
    """Whether its attempt was cleared since: it can only end in the stale file."""
    lost: bool
    """Whether the producer has given the record up."""


@dataclass(frozen=True, slots=True)
class Quiescence:
    """Outcome of a wait for a rollout's calls; true where no living producer has one outstanding."""

    settled: bool
    pending: tuple[PendingCall, ...]
    """What is still outstanding of the current attempt, calls of dead producers and lost ones included."""

    def __bool__(self) -> bool:
        return self.settled


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims file of one producer."""

    name: str
    read: ClaimsRead
    alive: bool
    """Whether the producer still lives; one that cannot be told counts as dead."""


def pending_calls(layout: Layout, rollout_id: str | None = None) -> list[PendingCall]:
    """The outstanding calls of one rollout or of all, oldest first. Raises `OSError`."""
    generations: dict[str, int] = {}

    def generation(slot_rollout_id: str) -> int:
        if slot_rollout_id not in generations:
            generations[slot_rollout_id] = read_generation(
                os.fspath(layout.generations), slot_rollout_id
            )
        return generations[slot_rollout_id]

    return outstanding(claims_files(layout, naming=rollout_id), generation, rollout_id)


def outstanding(
    files: Iterable[Claims], generation: Callable[[str], int], rollout_id: str | None = None
) -> list[PendingCall]:
    """The outstanding calls of some claims files, oldest first; `generation` says that of a rollout."""
    calls: list[PendingCall] = []
    for file in files:
        claims, alive = file.read, file.alive
        wanted = [s for s in claims.slots if rollout_id is None or s.rollout_id == rollout_id]
        for slot in wanted:
            calls.append(
                PendingCall(
                    rollout_id=slot.rollout_id,
                    model_call_id=slot.model_call_id,
                    generation=slot.generation,
                    started_at=slot.started_at,
                    producer=claims.identity.producer if claims.identity else "",
                    alive=alive,
                    stale=slot.generation < generation(slot.rollout_id),
                    lost=slot.state == "lost",
                )
            )
    return sorted(calls, key=lambda call: call.started_at)


def claims_files(
    layout: Layout, unusable: dict[str, str] | None = None, *, naming: str | None = None
) -> Iterator[Claims]:
    """Every claims file of the directory, or every one that has the name of a rollout in it.

    A file that cannot be read raises `OSError` or `StoreError`, or goes into `unusable`, by its name, with the reason.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(layout.claims))
    except FileNotFoundError:
        return
    for name in names:
        path = layout.claims / name
        try:
            data = read_file(path)
            # A thousand servers that were killed leave a thousand files, and each rollout's end is waited for with them.
            if naming is not None and naming.encode() not in data:
                continue
            claims = parse_claims(data)
            for _ in range(_TORN_READS):
                if not claims.damaged and claims.identity is not None:
                    break
                time.sleep(0.001)  # a slot that was being written
                claims = read_claims(path)
        except FileNotFoundError:
            continue
        except (OSError, StoreError) as error:
            if unusable is None:
                raise
            unusable[name] = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            continue
        alive = claims.identity is not None and claims.identity.is_alive(
            _heartbeat_of(layout, claims.identity.producer)
        )
        yield Claims(name, claims, alive)


def _heartbeat_of(layout: Layout, producer: str) -> float | None:
    """When a producer last wrote its status, Unix seconds; null where it never did."""
    try:
        return os.stat(layout.producers / f"{producer}.json").st_mtime
    except FileNotFoundError:
        return None
