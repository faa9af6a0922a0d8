"""The claims and the status of this process, and the duties that have to be repeated until the storage takes them."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator

from otel_gym.capture.claims import Claim, ClaimsFile
from otel_gym.capture.fence import read_generation
from otel_gym.capture.identity import ProcessIdentity
from otel_gym.capture.job import Job
from otel_gym.capture.open_files import make_directories
from otel_gym.capture.producer import LostCall, ProducerStatus
from otel_gym.capture.quick import calls_for
from otel_gym.capture.store import CaptureStore
from otel_gym.counters import count
from otel_gym.errors import StoreError

logger = logging.getLogger(__name__)

STALLED_S = 1.0
"""A storage operation that takes longer than this has stalled: calls are then not claimed, since a claim would stall the event loop with it."""
UNKNOWN_GENERATION = -1
"""Generation of a call whose rollout's generation could not be read: never taken for a straggler."""


class ProducerState:
    """What a `RecordWriter` knows of itself. `begin` is for event loops and costs microseconds; `tick` does the slow I/O."""

    def __init__(self, store: CaptureStore, written_to: Callable[[], list[str]]) -> None:
        """`written_to` names the rollouts whose files are open, to be marked where the directory was deleted under us."""
        self._store = store
        self._written_to = written_to
        self._generations = os.fspath(store.layout.generations)
        self._calls = calls_for(store.root)
        self._lock = threading.Lock()
        self._owed_markers: set[str] = set()
        self._lost_slots: list[int] = []
        self._unsettled: list[int] = []
        self._logged: set[str] = set()
        self._storing_since: float | None = None
        self.identity = ProcessIdentity.mine()
        self.status = ProducerStatus(store.layout, self.identity, store.file_mode)
        self.claims: ClaimsFile | None = None
        with self._guard("cannot be prepared"):
            self._open_claims()

    def begin(self, rollout_id: str, model_call_id: str) -> Claim:
        """Claim a call; one that cannot be claimed is counted and served all the same."""
        started_at = time.time()
        generation = UNKNOWN_GENERATION
        since = self._storing_since
        try:
            if since is not None and time.monotonic() - since > STALLED_S:
                raise TimeoutError
            generation = self._generation(rollout_id)
            if self.claims is None:
                raise FileNotFoundError
            slot = self.claims.begin(rollout_id, model_call_id, generation, started_at)
        except OSError:
            count("claims.failed")
            self.status.note_unclaimed(rollout_id)
            slot = 0
        return Claim(rollout_id, model_call_id, generation, slot, started_at)

    def storing(self, busy: bool) -> None:
        """A flusher makes progress and is (or is not) still busy with the storage: so `begin` notices an operation that stalls."""
        self._storing_since = time.monotonic() if busy else None

    def _generation(self, rollout_id: str) -> int:
        if self._calls.exists(f"{self._generations}/{rollout_id}".encode()):
            return read_generation(self._generations, rollout_id)
        return 0

    def settle(self, slots: list[int]) -> None:
        """The calls of these slots are recorded."""
        if self.claims is None:
            return
        try:
            self.claims.settle(slots)
        except OSError as error:
            self.report("claims cannot be settled", error)
            with self._lock:
                self._unsettled.extend(slots)

    def release(self, claim: Claim) -> None:
        """A claimed call turned out to need no record."""
        if self.claims is not None and claim.slot:
            with self._guard("claims cannot be written"):
                self.claims.release(claim.slot)

    def lose(self, job: Job, reason: str) -> None:
        """The record of a call is given up: counted, marked, and kept in the claims until the status file names it."""
        job.dropped = True
        count("records.lost")
        claim = job.claim
        self.status.note_lost(
            LostCall(claim.rollout_id, claim.model_call_id, claim.generation, reason, time.time())
        )
        if self.claims is not None and claim.slot:
            with self._guard("claims cannot be written"):
                self.claims.lose(claim.slot)
            with self._lock:
                self._lost_slots.append(claim.slot)
        self.owe_marker(claim.rollout_id)

    def owe_marker(self, rollout_id: str) -> None:
        """Have the rollout marked incomplete at the next tick, and at the ones after it until it is."""
        with self._lock:
            self._owed_markers.add(rollout_id)

    @property
    def owes(self) -> bool:
        """Whether a marker or a settlement is still to be written."""
        return bool(self._owed_markers or self._unsettled)

    def tick(self, *, closing: bool = False) -> None:
        """Write what is owed. Never raises: what the storage refuses is tried again at the next tick."""
        if self.claims is None:
            with self._guard("cannot be prepared"):
                self._open_claims()
        else:
            with self._guard("claims cannot be restored"):
                self._restore()
        for rollout_id in list(self._owed_markers):
            with self._guard("a rollout cannot be marked incomplete"):
                self._store.mark_incomplete(rollout_id)
                with self._lock:
                    self._owed_markers.discard(rollout_id)
        with self._lock:
            unsettled, self._unsettled = self._unsettled, []
        if unsettled:
            self.settle(unsettled)
        with self._guard("the status cannot be written"):
            lost = list(self._lost_slots)
            self.status.flush(self.claims.begun if self.claims else 0, closed=closing)
            if lost:
                with self._lock:
                    self._lost_slots = self._lost_slots[len(lost) :]
                self.settle(lost)

    def close(self) -> None:
        """Last tick, then close the claims file."""
        self.tick(closing=True)
        if self.claims is not None:
            with self._guard("claims cannot be closed"):
                self.claims.close()

    def report(self, what: str, error: Exception) -> None:
        """Count a failure of the storage, and log it once per cause."""
        count("store.failures")
        cause = f"{what}: {getattr(error, 'strerror', None) or error}"
        if cause not in self._logged and len(self._logged) < 1000:
            self._logged.add(cause)
            logger.warning("%s: %s", self._store.root, cause)

    def _open_claims(self) -> None:
        make_directories(self._store.layout, self._store.directory_mode)
        path = self._store.layout.claims / f"{self.identity.producer}.claims"
        self.claims = ClaimsFile(path, self.identity, self._store.file_mode)

    def _restore(self) -> None:
        assert self.claims is not None
        if self.claims.intact():
            return
        make_directories(self._store.layout, self._store.directory_mode)
        self.claims.restore()
        self.status.touch()
        self.report("the directory was removed while in use", FileNotFoundError("made again"))
        for rollout_id in self._written_to():
            self.owe_marker(rollout_id)

    @contextlib.contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, StoreError) as error:
            self.report(what, error)
