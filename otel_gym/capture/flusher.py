"""What a flusher thread does with a group of batches: make the lines, append, sync, settle, wake, tell.

All batches of a group are appended before the first is synced, so their data travels together; the locks are held until their syncs are done. A file that
another process has locked is left for the next round, and never waited for while a lock is held: two processes cannot wait for each other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from otel_gym.capture.appender import Appender
from otel_gym.capture.job import Job
from otel_gym.capture.lanes import MAX_GROUP, Batch, LaneQueue
from otel_gym.capture.line_maker import LineMaker
from otel_gym.capture.locks import Lock
from otel_gym.capture.open_append import OpenAppend
from otel_gym.capture.open_files import OpenFiles, sync_directory
from otel_gym.capture.producer_state import ProducerState
from otel_gym.capture.redact import Redactor
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.syncing import MAX_FILES, Entry, Syncer, make_syncer
from otel_gym.capture.waking import wake
from otel_gym.capture.written import Written
from otel_gym.counters import count
from otel_gym.errors import StoreError

logger = logging.getLogger(__name__)

BUSY_ROUND_S: Final = 0.003
"""How long a flusher keeps trying a locked file before it turns to other rollouts."""
WAKE_SHARE: Final = 4
"""Exchanges are woken when this fraction of the syncs on their way has ended: the event loop works on them while the disk works on the rest."""
_BUSY_PAUSE_S: Final = 0.0003
_BUSY_DELAY_S: Final = 0.002
_FIRST_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 1.0


BatchListener = Callable[[int, float, float], None]
"""Told of each batch: its records, how long the append took, and how long its sync was on the way, in seconds."""


class Flusher:
    """The work of the flusher threads of one writer; holds no state of its own."""

    def __init__(
        self,
        store: CaptureStore,
        files: OpenFiles,
        queue: LaneQueue,
        state: ProducerState,
        redactor: Redactor,
        listeners: list[Callable[[Written], None]],
        batch_listeners: list[BatchListener],
        nudge: Callable[[], None],
    ) -> None:
        self._store = store
        self._files = files
        self._queue = queue
        self._state = state
        self._lines = LineMaker(redactor, state, nudge)
        self._listeners = listeners
        self._batch_listeners = batch_listeners
        self._nudge = nudge
        self._generations = str(store.layout.generations)

    def run(self) -> None:
        """Body of a flusher thread; ends when the queue is stopped."""
        syncer = make_syncer()
        try:
            self._run(syncer)
        finally:
            syncer.close()

    def _run(self, syncer: Syncer) -> None:
        flying: dict[int, OpenAppend] = {}
        token = 0
        busy: list[Batch] = []
        patience = 0.0
        while True:
            room = len(flying) + MAX_GROUP <= MAX_FILES
            group = self._queue.take(wait=not flying and not busy) if room else []
            if group is None:
                if not flying and not busy:
                    return
                group = []
            if not busy:
                patience = time.monotonic() + BUSY_ROUND_S
            self._state.storing(True)
            opened, busy = self._append_all(busy + group)
            if busy and time.monotonic() > patience:
                for batch in busy:
                    self._queue.put_back(batch, _BUSY_DELAY_S, failed=False)
                busy = []
                self._nudge()
            submitted = []
            for item in opened:
                token += 1
                flying[token] = item
                submitted.append(Entry(token, item.appender.descriptor, item.block))
            began_s = time.perf_counter()
            syncer.submit(submitted)
            submitted_s = time.perf_counter()
            for item in opened:
                item.submitted_s = submitted_s
                if item.block:
                    item.write_s = submitted_s - began_s
            if flying:
                done = []
                for ended in syncer.reap(-(-len(flying) // WAKE_SHARE)):
                    item = flying.pop(ended.token)
                    item.end(ended)
                    done.append(item)
                self._complete(done)
            self._state.storing(bool(flying))
            if busy and not flying:
                time.sleep(_BUSY_PAUSE_S)

    def _append_all(self, group: list[Batch]) -> tuple[list[OpenAppend], list[Batch]]:
        """Append what can be appended now; (what is to be synced, batches whose files are locked by others)."""
        busy: list[Batch] = []
        opened: list[OpenAppend] = []
        refused: list[OpenAppend] = []
        for batch in group:
            unmade = [job for job in batch.jobs if not self._lines.make(job)]
            if unmade:
                batch.jobs = [job for job in batch.jobs if not job.dropped]
            if not batch.jobs:
                self._queue.finish(batch, unmade)
                continue
            if unmade:
                self._queue.forget(unmade)
            try:
                appended = self._append(batch)
            except (OSError, StoreError) as error:
                self._fail(batch, error)
                continue
            if appended is None:
                busy.append(batch)
                continue
            batch.parts = len(appended)
            for item in appended:
                (opened if item.error is None else refused).append(item)
        if refused:
            self._complete(refused)
        return opened, busy

    def _append(self, batch: Batch) -> list[OpenAppend] | None:
        """Append the batch's lines, those of a cleared attempt to the stale file; null where the file is locked."""
        rollout_id = batch.lane.rollout_id
        appender = self._lock(rollout_id, stale=False)
        if appender is None:
            return None
        try:
            generation = appender.locked_generation(self._generations, rollout_id)
            if generation == 0:  # never cleared: nobody can be late
                return [self._write(batch, batch.jobs, appender, stale=False)]
            current = [job for job in batch.jobs if not 0 <= job.claim.generation < generation]
            opened = []
            if len(current) < len(batch.jobs):
                late = [job for job in batch.jobs if 0 <= job.claim.generation < generation]
                stale = self._lock(rollout_id, stale=True)
                if stale is None:
                    appender.unlock()
                    self._files.give_back(appender)
                    return None
                opened.append(self._write(batch, late, stale, stale=True))
            if current:
                opened.insert(0, self._write(batch, current, appender, stale=False))
            else:
                self._discard(appender)
        except BaseException:
            appender.close()
            raise
        return opened

    def _write(
        self, batch: Batch, jobs: list[Job], appender: Appender, *, stale: bool
    ) -> OpenAppend:
        before = appender.end
        opened = OpenAppend(batch, jobs, appender, before, stale)
        lines = [job.line for job in jobs]
        if appender.locked and self._files.calls.local:
            opened.block, offsets = appender.block_of(lines)
        else:
            started_s = time.perf_counter()
            try:
                offsets = appender.write(lines)
            except (OSError, StoreError) as error:
                opened.error = error
                return opened
            opened.write_s = time.perf_counter() - started_s
        opened.offsets = offsets
        return opened

    def _lock(self, rollout_id: str, *, stale: bool) -> Appender | None:
        while True:
            appender = self._files.take(rollout_id, stale=stale)
            try:
                outcome = appender.try_lock()
            except BaseException:
                appender.close()
                raise
            if outcome is None:
                appender.close()
                continue
            if outcome is Lock.BUSY:
                self._files.give_back(appender)
                return None
            return appender

    def _discard(self, appender: Appender) -> None:
        """Give back a file that only told the generation; one that was made for that is removed."""
        if appender.created:
            appender.remove_if_made()
            appender.close()
        else:
            appender.unlock()
            self._files.give_back(appender)

    def _complete(self, items: Sequence[OpenAppend]) -> None:
        """Syncs have ended: take back what failed, unlock, settle, wake, account, tell."""
        made = [item for item in items if item.error is None and item.appender.created]
        if made:
            try:
                sync_directory(self._store.root)
            except OSError as error:
                for item in made:
                    item.error = error
            else:
                for item in made:
                    item.appender.created = False
        done: list[Job] = []
        for item in items:
            if item.error is not None:
                item.appender.take_back(item.before)
            else:
                item.tell_jobs()
                done.extend(item.jobs)
            try:
                item.appender.unlock()
            except OSError:
                item.appender.close()
            else:
                self._files.give_back(item.appender)
        if done:
            self._state.settle([job.claim.slot for job in done if job.claim.slot])
            wake(done)
        self._account(items)
        if self._batch_listeners:
            self._tell_batches([item for item in items if item.error is None])
        for job in done:
            self._tell(job)

    def _account(self, items: Sequence[OpenAppend]) -> None:
        """Count what was written; finish each batch whose parts have all ended, or put back what of it failed."""
        written = late = stale = 0
        for item in items:
            if item.error is None:
                written += len(item.jobs)
                late += sum(job.released for job in item.jobs)
                stale += len(item.jobs) if item.stale else 0
        for name, amount in (
            ("records.written", written),
            ("records.late", late),
            ("records.stale", stale),
        ):
            if amount:
                count(name, amount)
        for item in items:
            batch = item.batch
            batch.parts -= 1
            if item.error is not None:
                batch.failed.extend(item.jobs)
                batch.error = item.error
            if batch.parts:
                continue
            if batch.error is None:
                self._queue.finish(batch, batch.jobs)
                continue
            error, batch.error = batch.error, None
            failed, batch.failed = batch.failed, []
            refused = set(map(id, failed))
            self._queue.forget([job for job in batch.jobs if id(job) not in refused])
            batch.jobs = failed
            self._fail(batch, error)

    def _fail(self, batch: Batch, error: Exception) -> None:
        """The storage refused a batch: release its responses now, keep what the queue had room for, and try again later."""
        self._state.report("records cannot be written", error)
        kept = []
        dropped = []
        for job in batch.jobs:
            if job.admitted:
                kept.append(job)
            else:
                dropped.append(job)
                self._state.lose(job, f"storage: {getattr(error, 'strerror', None) or error}")
            if not job.released:
                job.released = True
                count("records.incomplete")
            self._state.owe_marker(job.claim.rollout_id)
        wake(batch.jobs)
        if kept:
            if dropped:
                self._queue.forget(dropped)
            batch.jobs = kept
            delay = min(_FIRST_RETRY_S * 2**batch.lane.failures, _LONGEST_RETRY_S)
            self._queue.put_back(batch, delay, failed=True)
        else:
            self._queue.finish(batch, dropped)
        self._nudge()

    def _tell_batches(self, items: list[OpenAppend]) -> None:
        ended_s = time.perf_counter()
        for item in items:
            for listener in self._batch_listeners:
                try:
                    listener(len(item.jobs), item.write_s, max(0.0, ended_s - item.submitted_s))
                except Exception as error:  # noqa: BLE001 - a listener's fault is not the writer's
                    count("capture.failures")
                    self._state.report("a listener failed", error)

    def _tell(self, job: Job) -> None:
        for listener in self._listeners:
            try:
                assert job.written is not None
                listener(job.written)
            except Exception as error:  # noqa: BLE001 - a listener's fault is not the writer's
                count("capture.failures")
                self._state.report("a listener failed", error)
