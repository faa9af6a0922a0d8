"""The queue of finished calls: handed over by event loops, taken in groups by flusher threads.

An event loop only appends to a lock-free inbox. A flusher sorts the inbox into lanes, one a rollout, and takes several lanes at once; what arrives for
a lane while it is being written is its next batch. So one sync serves all calls of a rollout that were waiting.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import Final

from otel_gym.capture.job import Job, Lane

MAX_BATCH_BYTES: Final = 2 * 1024 * 1024
"""Most bytes of one lane in one append."""
MAX_GROUP_BYTES: Final = 2 * 1024 * 1024
"""Bytes after which a flusher takes no further lane."""
MAX_GROUP: Final = 64
"""Most lanes that one flusher takes at once."""


class Batch:
    """The calls of one lane that are being written together."""

    __slots__ = ("error", "failed", "jobs", "lane", "parts")

    def __init__(self, lane: Lane, jobs: list[Job]) -> None:
        self.lane = lane
        self.jobs = jobs
        self.parts = 0
        """Appends of it that are not synced yet: one, or two where some calls are of a cleared attempt."""
        self.failed: list[Job] = []
        self.error: Exception | None = None


class LaneQueue:
    """See the module. Every method may be called from any thread."""

    def __init__(self, max_bytes: int, flushers: int) -> None:
        self._max_bytes = max_bytes
        self._flushers = flushers
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._leader = threading.Lock()
        self._state = threading.Lock()
        self._lanes: dict[str, Lane] = {}
        self._ready: deque[Lane] = deque()
        self._parked: set[Lane] = set()
        # What came in is counted by the event loops alone, what went out by the flushers alone: a loop never waits for a flusher's lock.
        self._entry = threading.Lock()
        self._bytes_in = 0
        self._jobs_in = 0
        self._bytes_out = 0
        self._jobs_out = 0
        self._stopping = False
        self.idle = threading.Condition(self._state)
        """Notified when nothing waits any more."""

    @property
    def waiting(self) -> int:
        """Calls that are neither written nor given up."""
        return self._jobs_in - self._jobs_out

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the calls that wait."""
        return self._bytes_in - self._bytes_out

    def put(self, job: Job) -> None:
        """Hand over a call; it is admitted where the queue has room for it."""
        with self._entry:
            job.admitted = not self.waiting or (
                self.waiting_bytes + job.size_bytes <= self._max_bytes
            )
            self._bytes_in += job.size_bytes
            self._jobs_in += 1
        self._inbox.put(job)

    def take(self, *, wait: bool) -> list[Batch] | None:
        """The next group, waiting for one where asked; null when the queue was stopped and nothing is ready."""
        group = self._take_now()
        if group or not wait:
            return group
        if self._stopping:
            self._stop_next()
            return None
        with self._leader:
            while True:
                if group := self._take_now():
                    return group
                if self._stopping:
                    self._stop_next()
                    return None
                job = self._inbox.get()
                if job is not None:
                    with self._state:
                        self._sort(job)

    def _stop_next(self) -> None:
        """Wake the next flusher to its end: this one may have drained that one's wake-up."""
        self._inbox.put(None)

    def finish(self, batch: Batch, jobs: list[Job]) -> None:
        """`jobs` of a batch are written or given up; the lane is free again."""
        with self._state:
            batch.lane.failures = 0
            self._free(batch.lane)
            self._forget(jobs)

    def forget(self, jobs: list[Job]) -> None:
        """Some jobs of a batch are written or given up; the rest of it is not finished."""
        with self._state:
            self._forget(jobs)

    def put_back(self, batch: Batch, delay_s: float, *, failed: bool) -> None:
        """Try a batch again after `delay_s`, or when the next call of its lane arrives after a failure."""
        with self._state:
            lane = batch.lane
            lane.jobs.extendleft(reversed(batch.jobs))
            lane.failures += failed
            lane.retry_at = time.monotonic() + delay_s
            lane.queued = False
            self._parked.add(lane)

    def release_parked(self) -> float | None:
        """Make the lanes ready whose time has come; seconds until the next one, null where none waits."""
        now = time.monotonic()
        with self._state:
            for lane in [lane for lane in self._parked if lane.retry_at <= now]:
                self._make_ready(lane)
            if self._ready:
                self._inbox.put(None)
            return min((lane.retry_at - now for lane in self._parked), default=None)

    def remove(self, dropped: Job) -> bool:
        """Take one waiting call out; false where a flusher has it or had it."""
        with self._state:
            self._drain()
            if self._ready:
                self._inbox.put(None)
            lane = self._lanes.get(dropped.claim.rollout_id)
            if lane is None or dropped not in lane.jobs:
                return False
            lane.jobs.remove(dropped)
            self._forget([dropped])
            return True

    def remove_all(self) -> list[Job]:
        """Take every call out that no flusher has."""
        with self._state:
            self._drain()
            jobs = [job for lane in self._lanes.values() for job in lane.jobs]
            for lane in self._lanes.values():
                lane.jobs.clear()
            self._forget(jobs)
            return jobs

    def stop(self) -> None:
        """Have `take` return null once nothing is ready."""
        self._stopping = True
        for _ in range(self._flushers):
            self._inbox.put(None)

    def _take_now(self) -> list[Batch]:
        with self._state:
            self._drain()
            share = -(-len(self._ready) // self._flushers)
            group: list[Batch] = []
            size = 0
            while self._ready and len(group) < min(share, MAX_GROUP) and size < MAX_GROUP_BYTES:
                lane = self._ready.popleft()
                jobs = self._next_jobs(lane)
                size += sum(job.size_bytes for job in jobs)
                if jobs:
                    group.append(Batch(lane, jobs))
                else:
                    self._free(lane)
            if self._ready:
                self._inbox.put(None)  # whoever leads next takes the rest
            return group

    def _next_jobs(self, lane: Lane) -> list[Job]:
        jobs: list[Job] = []
        size = 0
        while lane.jobs and (not jobs or size + lane.jobs[0].size_bytes <= MAX_BATCH_BYTES):
            job = lane.jobs.popleft()
            size += job.size_bytes
            jobs.append(job)
        return jobs

    def _drain(self) -> None:
        while True:
            try:
                job = self._inbox.get_nowait()
            except queue.Empty:
                return
            if job is not None:
                self._sort(job)

    def _sort(self, job: Job) -> None:
        rollout_id = job.claim.rollout_id
        lane = self._lanes.get(rollout_id)
        if lane is None:
            lane = self._lanes[rollout_id] = Lane(rollout_id)
        lane.jobs.append(job)
        if not lane.queued and (lane not in self._parked or lane.failures):
            self._make_ready(lane)

    def _make_ready(self, lane: Lane) -> None:
        self._parked.discard(lane)
        lane.queued = True
        self._ready.append(lane)

    def _free(self, lane: Lane) -> None:
        lane.queued = False
        if lane.jobs:
            self._make_ready(lane)
        elif lane not in self._parked:
            self._lanes.pop(lane.rollout_id, None)

    def _forget(self, jobs: list[Job]) -> None:
        self._bytes_out += sum(job.size_bytes for job in jobs)
        self._jobs_out += len(jobs)
        if not self.waiting:
            self.idle.notify_all()
