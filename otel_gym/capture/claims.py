"""Claims: the calls that one process has begun and not yet settled, in a file that survives its death.

The file `.otel-gym/claims/<producer>.claims` is a table of fixed-width text slots. The first slot holds the process's identity as JSON; every other one
is free (a space first), pending (`P`) or lost (`L`):

    P <crc32> <sequence> <generation> <started_at> <model_call_id> <rollout_id>

A claim is one write into a slot that is already allocated on disk, so it also works on a full disk. It is not synced: it has to outlive the process,
and a power failure ends the client's connection as well. A freed slot keeps its text, so the highest sequence is the number of calls ever begun.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from otel_gym.capture.identity import ProcessIdentity
from otel_gym.capture.private_files import is_at, read_file, set_mode
from otel_gym.capture.quick import PlainCalls, calls_for

SLOT_BYTES: Final = 512
MAX_CALL_ID: Final = 128
_FIRST_SLOTS: Final = 128
_PENDING: Final = b"P"
_LOST: Final = b"L"
_FREE: Final = b" "


@dataclass(slots=True)
class Claim:
    """A call that has begun."""

    rollout_id: str
    model_call_id: str
    generation: int
    """Generation of the rollout when the call began."""
    slot: int
    """Where it stands in the claims file; 0 where it could not be written."""
    started_at: float
    """Unix seconds UTC."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A claim as read from a file."""

    state: str
    """`pending` or `lost`."""
    sequence: int
    generation: int
    started_at: float
    model_call_id: str
    rollout_id: str


class ClaimsFile:
    """The claims of this process. All methods may be called from any thread."""

    def __init__(
        self, path: Path, identity: ProcessIdentity, mode: int, calls: PlainCalls | None = None
    ) -> None:
        """Create the file and allocate its first slots. Raises `OSError`."""
        self.path = path
        self._identity = identity
        self._mode = mode
        self._calls = calls or calls_for(path.parent)
        self._lock = threading.Lock()
        self._sequence = 0
        self._released = 0
        self._outstanding: dict[int, bytes] = {}
        self._free: list[int] = []
        self._slots = 0
        self._descriptor = -1
        self._create()

    @property
    def begun(self) -> int:
        """How many calls this process has begun, less those that were released."""
        return self._sequence - self._released

    @property
    def outstanding(self) -> int:
        """Slots that are pending or lost."""
        return len(self._outstanding)

    def begin(self, rollout_id: str, model_call_id: str, generation: int, started_at: float) -> int:
        """Write a claim and return its slot. Raises `OSError` where it cannot be written."""
        with self._lock:
            self._sequence += 1
            if not self._free:
                self._grow()
            slot = self._free.pop()
            text = f"{self._sequence} {generation} {started_at:.6f} {model_call_id[:MAX_CALL_ID]} {rollout_id}"
            body = text.encode("utf-8", "replace")
            line = b"P %08x %s" % (zlib.crc32(body), body)
            line = line.ljust(SLOT_BYTES - 1) + b"\n"
            try:
                self._calls.pwrite(self._descriptor, line, slot * SLOT_BYTES)
            except OSError:
                self._free.append(slot)
                raise
            self._outstanding[slot] = line
            return slot

    def settle(self, slots: list[int]) -> None:
        """Free the slots of calls that are recorded. Raises `OSError`."""
        with self._lock:
            for slot in slots:
                if self._outstanding.pop(slot, None) is not None:
                    self._calls.pwrite(self._descriptor, _FREE, slot * SLOT_BYTES)
                    self._free.append(slot)

    def release(self, slot: int) -> None:
        """Free the slot of a call that needs no record; it does not count as begun. Raises `OSError`."""
        self.settle([slot])
        with self._lock:
            self._released += 1
            self._write_header()

    def lose(self, slot: int) -> None:
        """Mark the call of a slot as lost; it stays until `settle`. Raises `OSError`."""
        with self._lock:
            line = self._outstanding.get(slot)
            if line is not None:
                self._outstanding[slot] = _LOST + line[1:]
                os.pwrite(self._descriptor, _LOST, slot * SLOT_BYTES)

    def intact(self) -> bool:
        """Whether the path still names the file. Raises `OSError`."""
        return is_at(self.path, self._descriptor)

    def restore(self) -> None:
        """Make the file again, with all outstanding claims. Raises `OSError`."""
        with self._lock:
            old, slots, free = self._descriptor, self._slots, self._free
            self._slots, self._free = 0, []
            try:
                self._create(max(slots, _FIRST_SLOTS))
            except OSError:
                if self._descriptor != old:
                    os.close(self._descriptor)
                self._descriptor, self._slots, self._free = old, slots, free
                raise
            os.close(old)
            self._free = [slot for slot in self._free if slot not in self._outstanding]
            for slot, line in self._outstanding.items():
                os.pwrite(self._descriptor, line, slot * SLOT_BYTES)

    def close(self) -> None:
        """Close the file; it is removed where nothing is outstanding in it."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                if not self._outstanding:
                    self.path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Close the file without touching it: it belongs to the parent of a forked process."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _create(self, slots: int = _FIRST_SLOTS) -> None:
        self._descriptor = os.open(
            self.path,
            os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW,
            self._mode,
        )
        set_mode(self._descriptor, self._mode)
        self._grow(slots)
        self._write_header()

    def _write_header(self) -> None:
        header = orjson.dumps({**self._identity.as_mapping(), "released": self._released})
        os.pwrite(self._descriptor, header.ljust(SLOT_BYTES - 1) + b"\n", 0)

    def _grow(self, slots: int | None = None) -> None:
        new = slots or 2 * self._slots
        os.posix_fallocate(
            self._descriptor, self._slots * SLOT_BYTES, (new - self._slots) * SLOT_BYTES
        )
        self._free.extend(range(new - 1, max(self._slots, 1) - 1, -1))
        self._slots = new


@dataclass(frozen=True, slots=True)
class ClaimsRead:
    """What a claims file said."""

    identity: ProcessIdentity | None
    """Null where the file's first slot is damaged."""
    begun: int
    """Calls that the process had begun, less those that were released."""
    slots: tuple[Slot, ...]
    damaged: int
    """Slots that are neither free nor readable."""


def read_claims(path: Path) -> ClaimsRead:
    """Read a claims file, of a living or a dead process. Raises `OSError`, among them `FileNotFoundError`, and `StoreError` for what is no regular file."""
    return parse_claims(read_file(path))


def parse_claims(data: bytes) -> ClaimsRead:
    """What the bytes of a claims file say."""
    released = 0
    try:
        header = orjson.loads(data[:SLOT_BYTES])
        released = int(header["released"])
        identity = ProcessIdentity.from_mapping(header)
    except (ValueError, KeyError, TypeError):
        identity = None
    begun, damaged, slots = 0, 0, []
    for line in _used(data):
        slot = _parse(line)
        if slot is None:
            damaged += line[:1] != _FREE
            continue
        begun = max(begun, slot.sequence)
        if slot.state != "free":
            slots.append(slot)
    return ClaimsRead(identity, max(0, begun - released), tuple(slots), damaged)


def _used(data: bytes) -> Iterator[bytes]:
    for start in range(SLOT_BYTES, len(data), SLOT_BYTES):
        if data[start] != 0:
            yield data[start : start + SLOT_BYTES]


def _parse(line: bytes) -> Slot | None:
    """The claim of a slot, also of a freed one; null where the checksum does not fit (damaged, or being written)."""
    state = {_PENDING: "pending", _LOST: "lost", _FREE: "free"}.get(line[:1])
    body = line[11:].rstrip()
    if state is None or line[2:10] != b"%08x" % zlib.crc32(body):
        return None
    words = body.split(b" ", 3)
    if len(words) != 4:
        return None
    model_call_id, _, rollout_id = words[3].rpartition(b" ")
    return Slot(
        state=state,
        sequence=int(words[0]),
        generation=int(words[1]),
        started_at=float(words[2]),
        model_call_id=model_call_id.decode("utf-8", "replace"),
        rollout_id=rollout_id.decode("utf-8", "replace"),
    )
