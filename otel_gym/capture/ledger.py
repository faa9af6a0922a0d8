"""The ledger: what became of every call of a capture directory, from files alone.

A call was *started* if there is a record, a claim or a note of its loss. It is then recorded, stale, pending or lost; `missing` says how many have left no
record and never will.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from otel_gym.capture.ledger_files import DirectoryFiles, Exported, Fences, exported_ranges
from otel_gym.capture.pending import Claims, PendingCall, claims_files, outstanding
from otel_gym.capture.producer import StatusRead, read_statuses
from otel_gym.capture.source import RecordLine
from otel_gym.capture.store import CaptureStore
from otel_gym.correlation.rollout_id import is_valid
from otel_gym.dialects import read_usage
from otel_gym.errors import StoreError

CLOCK_TOLERANCE_S: Final = 0.001
"""A call that completed this much before it started shows a clock that was set back."""


@dataclass(slots=True)
class RolloutLedger:
    """One rollout's account."""

    rollout_id: str
    started: int = 0
    """Calls of the current attempt that are known to have begun."""
    recorded: int = 0
    """Calls with a record; a call that stands twice counts once."""
    exported: int | None = None
    """Records that a backend has accepted; null where nothing was ever exported from the directory."""
    stale: int = 0
    """Records of cleared attempts in the stale file."""
    cleared: int = 0
    """Records that clears have removed."""
    torn: int = 0
    """Lines that are no record."""
    torn_at_bytes: list[int] = field(default_factory=list)
    """Offsets of the first ten such lines."""
    pending_live: int = 0
    """Calls in flight at living producers."""
    pending_dead: int = 0
    """Calls whose producer died before their record."""
    lost: int = 0
    """Calls whose record was given up."""
    unclaimed: int = 0
    """Calls that could not be claimed before they ran; if their record is missing too, nothing else shows it."""
    oversized: int = 0
    """Records whose request or response was cut at the recording limit."""
    redacted: int = 0
    """Records with redacted fields."""
    without_usage: int = 0
    """Answered calls whose engine reported no token counts, such as a stream whose caller did not ask for them."""
    duplicates: int = 0
    """Lines that repeat another line's `model_call_id`."""
    clock_anomalies: int = 0
    """Records that completed before they started."""
    incomplete_marker: bool = False
    """Whether the rollout is marked incomplete."""
    uncaptured: bool = False
    """Whether the rollout was played and no call of it is known: its agent may have gone past the model server."""
    unreadable: str | None = None
    """Why its file cannot be read; null where it can."""

    @property
    def missing(self) -> int:
        """Calls without a record that will never have one, and damaged lines."""
        return self.pending_dead + self.lost + self.torn

    @property
    def whole(self) -> bool:
        """Whether no evidence is missing. A call in flight is not missing."""
        return not (self.missing or self.incomplete_marker or self.uncaptured) and (
            self.unreadable is None
        )


@dataclass(slots=True)
class Ledger:
    """The account of a directory."""

    directory: str
    rollouts: list[RolloutLedger] = field(default_factory=list)
    unprefixed: int = 0
    """Model calls that came without a rollout prefix: they belong to no rollout and have no record."""
    invalid_ids: dict[str, int] = field(default_factory=dict)
    """Calls that were served and not captured, by the id that breaks the grammar."""
    invalid_files: list[str] = field(default_factory=list)
    """Capture files whose names hold no valid id; nothing here reads them."""
    lost_unnamed: int = 0
    """Given-up records beyond those that a producer names."""
    begun_unaccounted: int = 0
    """Calls that producers say they began and that no file accounts for."""
    unusable: dict[str, str] = field(default_factory=dict)
    """Claims and status files that cannot be read or are damaged, with the reason: what they said is lost."""
    producers_live: int = 0
    producers_dead: int = 0
    """Producers that ended without closing; a crash, or SIGKILL."""

    @property
    def whole(self) -> bool:
        """Whether no evidence is missing in the directory."""
        return (
            all(rollout.whole for rollout in self.rollouts)
            and not self.unprefixed
            and not self.invalid_ids
            and not self.lost_unnamed
            and not self.begun_unaccounted
            and not self.unusable
        )

    def totals(self) -> dict[str, int]:
        """Sums over the rollouts."""
        sums: Counter[str] = Counter(missing=0, unreadable=0)
        for rollout in self.rollouts:
            for name, value in asdict(rollout).items():
                if type(value) is int:
                    sums[name] += value
            sums["missing"] += rollout.missing
            sums["incomplete_markers"] += rollout.incomplete_marker
            sums["uncaptured"] += rollout.uncaptured
            sums["unreadable"] += rollout.unreadable is not None
        return dict(sums)

    def as_mapping(self) -> dict[str, Any]:
        """The JSON form of the ledger."""
        return {
            "directory": self.directory,
            "whole": self.whole,
            "totals": self.totals(),
            "unprefixed": self.unprefixed,
            "invalid_ids": self.invalid_ids,
            "invalid_files": self.invalid_files,
            "lost_unnamed": self.lost_unnamed,
            "begun_unaccounted": self.begun_unaccounted,
            "unusable": self.unusable,
            "producers": {"live": self.producers_live, "dead": self.producers_dead},
            "rollouts": [
                {**asdict(rollout), "missing": rollout.missing, "whole": rollout.whole}
                for rollout in self.rollouts
            ],
        }


def read_ledger(store: CaptureStore) -> Ledger:
    """Account for every call of the directory. Files are read once, in constant memory but for the ids of one rollout. Raises `OSError`."""
    ledger = Ledger(directory=os.fspath(store.root))
    statuses = list(read_statuses(store.layout, ledger.unusable))
    # Claims before records: a call that settles in between is then found recorded, not lost from sight.
    claims = list(claims_files(store.layout, ledger.unusable))
    begun = _producers(statuses, claims, ledger)
    files = DirectoryFiles.of(store.layout)
    fences = Fences(store.layout)
    pending: dict[str, list[PendingCall]] = {}
    for call in outstanding(claims, fences.generation):
        pending.setdefault(call.rollout_id, []).append(call)
    lost: dict[str, dict[str, int]] = {}
    unclaimed: Counter[str] = Counter()
    for status in statuses:
        for loss in status.lost:
            lost.setdefault(loss.rollout_id, {})[loss.model_call_id] = loss.generation
        unclaimed.update(status.unclaimed)
    exported = exported_ranges(store.layout)
    ledger.invalid_files = files.invalid
    accounted = 0
    for rollout_id in sorted({*files.rollouts, *filter(is_valid, {*pending, *lost, *unclaimed})}):
        account = RolloutLedger(rollout_id, unclaimed=unclaimed[rollout_id])
        account.incomplete_marker = rollout_id in files.incomplete
        seen, claimed = _read_records(store, account, exported)
        # The fence after the records: what a clear removes in between is counted by one of them.
        attempt, account.cleared = fences.of(rollout_id)
        account.unreadable = account.unreadable or fences.unreadable.get(rollout_id)
        late = set()
        if rollout_id in files.stale:
            late = {
                str(line.record.get("model_call_id"))
                for line in _readable(store.iter_stale(rollout_id), account)
                if line.record is not None
            }
        account.stale = len(late)
        gone = {
            call.model_call_id: call
            for call in pending.get(rollout_id, [])
            if call.model_call_id not in seen and call.model_call_id not in late
        }
        losses = {
            name: generation
            for name, generation in lost.get(rollout_id, {}).items()
            if name not in seen and name not in late
        }
        current = {name: call for name, call in gone.items() if not call.stale}
        given_up = {name for name, call in current.items() if call.lost}
        given_up |= {name for name, began in losses.items() if not 0 <= began < attempt}
        superseded = len({*gone, *losses} - {*current, *given_up})
        waiting = [call for name, call in current.items() if name not in given_up]
        account.lost = len(given_up)
        account.pending_live = sum(call.alive for call in waiting)
        account.pending_dead = len(waiting) - account.pending_live
        account.recorded = len(seen)
        account.started = len(seen) + len(given_up) + len(waiting)
        account.uncaptured = rollout_id in files.played and not (
            account.started or account.stale or account.cleared
        )
        accounted += claimed + len(given_up) + len(waiting)
        accounted += account.stale + account.cleared + superseded
        ledger.rollouts.append(account)
    ledger.begun_unaccounted = max(0, begun - accounted - ledger.lost_unnamed)
    return ledger


def _producers(statuses: list[StatusRead], files: list[Claims], ledger: Ledger) -> int:
    """How many calls all producers began."""
    begun: dict[str, int] = {}
    for status in statuses:
        begun[status.identity.producer] = status.begun
        ledger.unprefixed += status.unprefixed
        for name, count in status.invalid_ids.items():
            ledger.invalid_ids[name] = ledger.invalid_ids.get(name, 0) + count
        if status.invalid_more:
            ledger.invalid_ids["(others)"] = (
                ledger.invalid_ids.get("(others)", 0) + status.invalid_more
            )
        ledger.lost_unnamed += status.lost_more
        ledger.producers_live += status.alive
        ledger.producers_dead += not status.alive and not status.closed
    for file in files:
        claims = file.read
        if claims.identity is None:
            ledger.unusable[file.name] = "does not say whose it is"
        elif claims.damaged and not file.alive:
            ledger.unusable[file.name] = f"{claims.damaged} claims cannot be read"
        if claims.identity is not None:
            name = claims.identity.producer
            begun[name] = max(begun.get(name, 0), claims.begun)
    return sum(begun.values())


def _read_records(
    store: CaptureStore, account: RolloutLedger, exported: Exported | None
) -> tuple[set[str], int]:
    """Read the rollout's file into its account; (ids of its calls, how many a producer of ours may have claimed)."""
    seen: set[str] = set()
    unnamed = claimed = 0
    if exported is not None:
        account.exported = 0
    for line in _readable(store.iter_lines(account.rollout_id), account):
        if line.record is None:
            account.torn += 1
            if len(account.torn_at_bytes) < 10:
                account.torn_at_bytes.append(line.offset_bytes)
            continue
        record = line.record
        name = record.get("model_call_id")
        if not isinstance(name, str):
            unnamed += 1
            name = f"\x00{unnamed}"
        if name in seen:
            account.duplicates += 1
        else:
            seen.add(name)
            claimed += "schema" in record
        account.oversized += bool(record.get("request_cut") or record.get("response_cut"))
        account.redacted += "redacted" in record
        account.without_usage += _lacks_usage(record)
        account.clock_anomalies += _ran_backwards(record)
        if exported is not None and account.exported is not None:
            account.exported += exported.has(account.rollout_id, line.offset_bytes)
    return seen, claimed


def _readable(lines: Iterator[RecordLine], account: RolloutLedger) -> Iterator[RecordLine]:
    """The lines up to where the file cannot be read, which is noted."""
    try:
        yield from lines
    except (OSError, StoreError) as error:
        account.unreadable = str(error)


def _lacks_usage(record: dict[str, Any]) -> bool:
    status, response = record.get("status_code"), record.get("response")
    if not isinstance(status, int) or status >= 400 or not isinstance(response, dict):
        return False
    usage = read_usage(str(record.get("dialect")), response)
    return usage.input is None and usage.output is None


def _ran_backwards(record: dict[str, Any]) -> bool:
    started, completed = record.get("started_at"), record.get("completed_at")
    return (
        isinstance(started, (int, float))
        and isinstance(completed, (int, float))
        and completed < started - CLOCK_TOLERANCE_S
    )
