"""The calls that all producers of a directory have begun and not settled."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from otel_gym.capture.claims import ClaimsRead, read_claims
from otel_gym.capture.fence import read_generation
from otel_gym.capture.layout import Layout

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


def pending_calls(layout: Layout, rollout_id: str | None = None) -> list[PendingCall]:
    """The outstanding calls of one rollout or of all, oldest first. Raises `OSError`."""
    calls: list[PendingCall] = []
    generations: dict[str, int] = {}
    for claims, heartbeat in claims_files(layout):
        wanted = [s for s in claims.slots if rollout_id is None or s.rollout_id == rollout_id]
        if not wanted:
            continue
        alive = claims.identity is not None and claims.identity.is_alive(heartbeat)
        for slot in wanted:
            if slot.rollout_id not in generations:
                generations[slot.rollout_id] = read_generation(
                    os.fspath(layout.generations), slot.rollout_id
                )
            calls.append(
                PendingCall(
                    rollout_id=slot.rollout_id,
                    model_call_id=slot.model_call_id,
                    generation=slot.generation,
                    started_at=slot.started_at,
                    producer=claims.identity.producer if claims.identity else "",
                    alive=alive,
                    stale=slot.generation < generations[slot.rollout_id],
                    lost=slot.state == "lost",
                )
            )
    return sorted(calls, key=lambda call: call.started_at)


def claims_files(layout: Layout) -> Iterator[tuple[ClaimsRead, float | None]]:
    """Every claims file of the directory with its producer's last heartbeat. Raises `OSError`."""
    try:
        names = sorted(entry.name for entry in os.scandir(layout.claims))
    except FileNotFoundError:
        return
    for name in names:
        path = layout.claims / name
        try:
            claims = read_claims(path)
            for _ in range(_TORN_READS):
                if not claims.damaged and claims.identity is not None:
                    break
                time.sleep(0.001)  # a slot that was being written
                claims = read_claims(path)
        except FileNotFoundError:
            continue
        producer = claims.identity.producer if claims.identity else name.removesuffix(".claims")
        try:
            heartbeat = os.stat(layout.producers / f"{producer}.json").st_mtime
        except FileNotFoundError:
            heartbeat = None
        yield claims, heartbeat
