"""`RecordWriter`: makes finished exchanges durable, off the event loop.

    event loop                     flusher threads                      housekeeping thread
    begin() ── claim, one pwrite
    write() ── inbox ───────────▶  lane per rollout: make lines,
       ▲                           lock, append, sync, unlock,
       └── one wake a group ────   settle claims, tell listeners        markers, status file, retries

Capture never fails a request: whatever the storage does, `write` returns, and what was not made durable is counted, marked and kept for another try.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from otel_gym.capture.claims import Claim
from otel_gym.capture.facts import ExchangeFacts
from otel_gym.capture.flusher import BatchListener, Flusher
from otel_gym.capture.job import Job
from otel_gym.capture.lanes import LaneQueue
from otel_gym.capture.layout import RECORDS
from otel_gym.capture.open_files import OpenFiles
from otel_gym.capture.producer_state import ProducerState
from otel_gym.capture.redact import Redactor
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.syncing import parallel_sync_available
from otel_gym.capture.waking import resolve, wake
from otel_gym.capture.written import Written
from otel_gym.counters import count

FLUSHERS: Final = 1 if parallel_sync_available() else 8
"""Flusher threads of a writer. One is fastest where it can sync many files at once: its batches are larger, and threads that compete for the
interpreter's lock slow the event loop down. Elsewhere each sync on its way needs a thread of its own."""
TICK_S: Final = 1.0
"""Pause of the housekeeping thread where nothing is urgent."""
_RECORD_OVERHEAD_BYTES: Final = 2048


class RecordWriter:
    """The writer of one process for one directory. Threads start with the first call; a forked child starts its own."""

    def __init__(
        self,
        root: Path | str,
        *,
        durability_timeout_s: float = 5.0,
        queue_max_bytes: int = 256 * 1024 * 1024,
        file_mode: int = 0o600,
        directory_mode: int = 0o700,
        redact: Sequence[str] = (),
        flushers: int = FLUSHERS,
    ) -> None:
        """`queue_max_bytes` bounds the finished calls that wait. Raises `SettingsError` for a bad path in `redact`, `StoreError` for a bad `root`."""
        self.store = CaptureStore(root, file_mode=file_mode, directory_mode=directory_mode)
        self.root = self.store.root
        self._timeout_s = durability_timeout_s
        self._queue_max_bytes = queue_max_bytes
        self._redactor = Redactor(redact)
        self._flushers = flushers
        self._listeners: list[Callable[[Written], None]] = []
        self._batch_listeners: list[BatchListener] = []
        self._files = OpenFiles(self.store.layout, file_mode, directory_mode)
        self._reset()
        _writers.add(self)

    def _reset(self) -> None:
        self._start_lock = threading.Lock()
        self._nudged = threading.Event()
        self._threads: list[threading.Thread] = []
        self._state: ProducerState | None = None
        self._closed = False
        self._watched: dict[asyncio.AbstractEventLoop, deque[tuple[float, weakref.ref[Job]]]] = {}
        self._queue = LaneQueue(self._queue_max_bytes, self._flushers)

    # -- calls

    def begin(self, rollout_id: str, model_call_id: str) -> Claim:
        """Claim a call before the application runs; survives the death of the process. Never raises because of storage trouble."""
        return (self._state or self._start()).begin(rollout_id, model_call_id)

    def release(self, claim: Claim) -> None:
        """Take back the claim of a call that turned out to need no record."""
        (self._state or self._start()).release(claim)

    async def write(self, facts: ExchangeFacts, claim: Claim) -> Written | None:
        """Make the record of a call durable and return where it stands.

        Null where that fails or takes longer than the bound: then the rollout is marked incomplete, and the record is written later if the storage
        recovers. The record does not depend on the awaiting task: cancelling it loses nothing.
        """
        try:
            future = self._submit(facts, claim, asyncio.get_running_loop())
        except Exception as error:  # noqa: BLE001 - capture never fails a request
            count("capture.failures")
            (self._state or self._start()).report("a call cannot be handed over", error)
            return None
        return await future

    def add_listener(self, listener: Callable[[Written], None]) -> None:
        """Call `listener` from a writer thread with every record once it is durable."""
        self._listeners.append(listener)

    def add_batch_listener(self, listener: BatchListener) -> None:
        """Call `listener` from a writer thread after each batch with (records, seconds of the append, seconds of the sync)."""
        self._batch_listeners.append(listener)

    def note_unprefixed(self) -> None:
        """Count a model call that came without a rollout prefix."""
        (self._state or self._start()).status.note_unprefixed()

    def note_invalid_id(self, rollout_id: str) -> None:
        """Count a call whose rollout id breaks the grammar."""
        (self._state or self._start()).status.note_invalid_id(rollout_id)

    @property
    def waiting(self) -> int:
        """Calls that are neither written nor given up."""
        return self._queue.waiting

    @property
    def waiting_bytes(self) -> int:
        """Bytes of those calls."""
        return self._queue.waiting_bytes

    # -- the end

    def close(self, timeout: float = 5.0) -> bool:
        """Write what waits, at most `timeout` seconds, then stop; whether all was written. What is left is given up, counted and marked."""
        with self._start_lock:
            if self._closed:
                return True
            self._closed = True
        state = self._state
        if state is None:
            return True
        deadline = time.monotonic() + timeout
        self._nudged.set()
        with self._queue.idle:
            self._queue.idle.wait_for(lambda: self._queue.waiting == 0, timeout)
        left = self._queue.remove_all()
        for job in left:
            state.lose(job, "the process ended before the storage took it")
        wake(left)
        self._queue.stop()
        self._nudged.set()
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        state.close()
        self._files.close()
        _writers.discard(self)
        return not left and self._queue.waiting == 0

    # -- inside

    def _start(self) -> ProducerState:
        with self._start_lock:
            if self._state is not None:
                return self._state
            state = ProducerState(self.store, self._open_rollouts)
            flusher = Flusher(
                self.store,
                self._files,
                self._queue,
                state,
                self._redactor,
                self._listeners,
                self._batch_listeners,
                self._nudged.set,
            )
            self._threads = [
                threading.Thread(
                    target=self._housekeep, args=(state,), name="otel-gym-housekeeping", daemon=True
                ),
                *(
                    threading.Thread(target=flusher.run, name=f"otel-gym-flusher-{i}", daemon=True)
                    for i in range(self._flushers)
                ),
            ]
            for thread in self._threads:
                thread.start()
            self._state = state
            return state

    def _submit(
        self, facts: ExchangeFacts, claim: Claim, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Future[Written | None]:
        state = self._state or self._start()
        job = Job(
            facts=facts,
            claim=claim,
            size_bytes=facts.request.size_bytes
            + facts.response.size_bytes
            + _RECORD_OVERHEAD_BYTES,
            admitted=True,
            future=loop.create_future(),
            loop=loop,
        )
        if self._closed:
            state.lose(job, "the writer was closed")
            state.tick()
            resolve([job])
        else:
            self._watch(job, loop)
            self._queue.put(job)
        assert job.future is not None
        return job.future

    def _watch(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        """Have the job's waiting end at the bound. All bounds are equal, so one timer a loop serves a queue of jobs in order.

        The queue holds weak references: a job that is done takes no memory behind one that is not.
        """
        deadline = loop.time() + self._timeout_s
        watched = self._watched.get(loop)
        if watched is None:
            for closed in [other for other in self._watched if other.is_closed()]:
                del self._watched[closed]
            watched = self._watched[loop] = deque()
            loop.call_at(deadline, self._sweep, loop)
        while watched and _answered(watched[0][1]):
            watched.popleft()
        watched.append((deadline, weakref.ref(job)))

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        watched = self._watched.get(loop, deque())
        while watched and (_answered(watched[0][1]) or watched[0][0] <= loop.time()):
            job = watched.popleft()[1]()
            if job is not None and not job.answered:
                self._expire(job)
        if watched:
            loop.call_at(watched[0][0], self._sweep, loop)
        else:
            self._watched.pop(loop, None)

    def _expire(self, job: Job) -> None:
        """The bound is over; runs on the event loop."""
        state = self._state
        if state is not None and job.written is None and not job.released:
            job.released = True
            count("records.incomplete")
            state.owe_marker(job.claim.rollout_id)
            if not job.admitted and self._queue.remove(job):
                state.lose(job, "the queue was full and the storage too slow")
            self._nudged.set()
        resolve([job])

    def _housekeep(self, state: ProducerState) -> None:
        while not self._closed or self._queue.waiting:
            pause = self._queue.release_parked()
            longest = 0.1 if state.owes else TICK_S
            self._nudged.wait(longest if pause is None else max(0.001, min(pause, longest)))
            self._nudged.clear()
            self._queue.release_parked()
            state.tick()

    def _open_rollouts(self) -> list[str]:
        return [
            os.path.basename(path).removesuffix(RECORDS)
            for path in self._files.names()
            if path.endswith(RECORDS)
        ]

    def _after_fork(self) -> None:
        """In a forked child: the queue, the threads and the claims are the parent's."""
        if self._state is not None and self._state.claims is not None:
            self._state.claims.abandon()
        self._reset()


def _answered(reference: weakref.ref[Job]) -> bool:
    job = reference()
    return job is None or job.answered


_writers: weakref.WeakSet[RecordWriter] = weakref.WeakSet()


def _after_fork() -> None:
    for writer in list(_writers):
        writer._after_fork()


def _at_exit() -> None:
    for writer in list(_writers):
        writer.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

__all__ = ["Claim", "RecordWriter"]
