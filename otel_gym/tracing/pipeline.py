"""Live export: a cursor over the capture files, with a fast path for records that were just written.

A fresh record goes from the writer straight into a bounded queue. When the queue is full or the backend is away, only the record's place is
remembered, and the worker reads it back from the file when there is room again. So memory is bounded, and a dead backend costs lag, not data. The same
worker, told to follow, is the sidecar: then the files are its only source.

One process exports what it was offered, plus whatever the cursor shows as never exported when it starts. Several servers may share a directory: their
ranges interleave in one cursor journal.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_gym.capture.written import Written
from otel_gym.correlation.run import Run
from otel_gym.counters import count
from otel_gym.tracing.backlog import Backlog
from otel_gym.tracing.endpoint import OtlpEndpoint, traces_endpoint
from otel_gym.tracing.options import SpanOptions, span_options
from otel_gym.tracing.rollout import RolloutRecord
from otel_gym.tracing.sender import Sender
from otel_gym.tracing.worker import Worker

if TYPE_CHECKING:
    from otel_gym.settings import Settings
    from otel_gym.tracing.span_data import SpanData

_logger = logging.getLogger(__name__)

RESCAN_S: Final = 2.0
"""How often a live pipeline looks for new rollout records."""
FOLLOW_S: Final = 0.5
"""How often a following one looks for appended records."""

SCAN_REST: Final = 9.0
"""How many times the CPU time of a scan passes until the next one, at least: a large directory takes a tenth of a core, not a whole one."""

OnSpan = Callable[["SpanData", Mapping[str, Any]], None]
"""Told of every span that is made for the first time, with its record: metrics."""


@dataclass(frozen=True, slots=True)
class PipelineLimits:
    """Bounds of a pipeline."""

    queue_max_spans: int = 8192
    queue_max_bytes: int = 64 * 1024 * 1024
    batch_max_spans: int = 512
    batch_max_bytes: int = 3 * 1024 * 1024
    interval_s: float = 1.0
    """Longest time a span waits for its batch to fill."""


class Pipeline:
    """Exports the records of one directory to one backend. Thread-safe; after a fork each process exports what it is offered."""

    _thread: threading.Thread | None

    def __init__(
        self,
        directory: Path,
        run: Run,
        options: SpanOptions,
        endpoint: OtlpEndpoint,
        *,
        limits: PipelineLimits | None = None,
        follow: bool = False,
        on_span: OnSpan | None = None,
        sender: Callable[[], Sender] | None = None,
    ) -> None:
        """`sender` replaces the connection to `endpoint`, which then only names the cursor."""
        self.directory = directory
        self._arguments = (directory, run, options, endpoint)
        self._limits = limits or PipelineLimits()
        self._follow = follow
        self.on_span = on_span
        """Told of every span that this process makes for the first time; may be set at any time."""
        self._sender = sender
        self._is_started = False
        self._reset()
        _forkable.add(self)

    def start(self) -> Pipeline:
        """Begins to export, first what the cursor shows as left over. Returns itself."""
        if not self._is_started:
            self._is_started = True
            self._guarded(self._worker.snapshot)
            self._spawn()
        return self

    def offer(self, written: Written) -> None:
        """Takes a record that has just become durable; never blocks, never raises. Records of a cleared attempt are passed over."""
        if written.stale:
            return
        if self._backlog.offer(written) and self._is_sleeping:
            self._wake.set()
        if self._thread is None and self._is_started:
            self._spawn()

    def offer_rollout(self, record: RolloutRecord | Mapping[str, Any]) -> None:
        """Takes a rollout record that has just been written to its file."""
        rollout_id = (
            record.rollout_id if isinstance(record, RolloutRecord) else str(record["rollout_id"])
        )
        self._backlog.add_rollouts([rollout_id], is_own=True)
        self._wake.set()
        if self._thread is None and self._is_started:
            self._spawn()

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything that is offered, and for a following pipeline everything in the files, is exported; whether that was so in time."""
        deadline = time.monotonic() + timeout_s
        self._is_scan_due = True
        self._flushing += 1
        self._wake.set()
        try:
            with self._idle:
                while not self._is_done():
                    left = deadline - time.monotonic()
                    if left <= 0 or self._thread is None:
                        return False
                    self._idle.wait(min(left, 0.1))
            return True
        finally:
            self._flushing -= 1

    def close(self, timeout_s: float = 5.0) -> bool:
        """Flushes within `timeout_s`, then stops; whether everything was exported. What was not stays behind the cursor."""
        thread = self._thread
        self._is_started = False
        if thread is None:
            return self._backlog.is_empty()
        is_done = self.flush(timeout_s)
        self._stop.set()
        self._wake.set()
        # A request that hangs ends by its own timeout; the thread is a daemon, so the process need not wait for that.
        thread.join(timeout=1.0)
        self._thread = None
        return is_done

    @property
    def follows(self) -> bool:
        """Whether the files are its only source: the sidecar."""
        return self._follow

    @property
    def exported(self) -> int:
        """Spans that the backend accepted from this process."""
        return self._worker.exported

    @property
    def queue_length(self) -> int:
        """Records that wait in memory."""
        return len(self._backlog)

    @property
    def queue_bytes(self) -> int:
        """Bytes of the records that wait in memory."""
        return self._backlog.bytes

    @property
    def lag_s(self) -> float:
        """Age of the oldest record that waits to be exported, in seconds; 0 where none does."""
        times = [self._backlog.oldest(), self._worker.batch_opened_at]
        oldest = min((moment for moment in times if moment is not None), default=None)
        return 0.0 if oldest is None else max(0.0, time.monotonic() - oldest)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(threading.Lock())
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._backlog = Backlog(self._limits.queue_max_spans, self._limits.queue_max_bytes)
        directory, run, options, endpoint = self._arguments
        self._worker = Worker(
            directory,
            run,
            options,
            endpoint,
            self._backlog,
            batch_max_spans=self._limits.batch_max_spans,
            batch_max_bytes=self._limits.batch_max_bytes,
            follow=self._follow,
            on_span=self._tell,
            sender=self._sender,
            pause=lambda seconds: not self._stop.wait(seconds),
        )
        self._is_working = False
        self._is_sleeping = False
        self._is_scan_due = False
        self._flushing = 0
        self._last_error = ""
        self._thread = None

    def _after_fork(self) -> None:
        """In a child: what was queued belongs to the parent, and so does its connection."""
        self._reset()

    def _tell(self, span: SpanData, record: Mapping[str, Any]) -> None:
        if self.on_span is not None:
            self.on_span(span, record)

    def _spawn(self) -> None:
        with self._lock:
            if self._thread is not None or self._stop.is_set():
                return
            self._is_working = True
            self._thread = threading.Thread(target=self._run, name="otel-gym-export", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        interval_s = FOLLOW_S if self._follow else RESCAN_S
        while not self._guarded(self._worker.load) and not self._stop.wait(1.0):
            pass
        next_scan = time.monotonic() + interval_s
        try:
            while not self._stop.is_set():
                if self._is_scan_due or time.monotonic() >= next_scan:
                    self._is_working = True
                    began_cpu_s = time.thread_time()
                    at_once, self._is_scan_due = self._is_scan_due, False
                    self._guarded(partial(self._worker.scan, at_once=at_once))
                    scan_cpu_s = time.thread_time() - began_cpu_s
                    next_scan = time.monotonic() + max(interval_s, scan_cpu_s * SCAN_REST)
                if not self._guarded(self._turn):
                    self._stop.wait(1.0)
        finally:
            self._is_working = False
            self._guarded(self._worker.close)

    def _turn(self) -> None:
        """Fills the batch, sends it when it is due, and sleeps when there is nothing to do."""
        worker, backlog = self._worker, self._backlog
        self._is_working = True
        worker.fill()
        if worker.batch and (
            worker.batch.is_full()
            or self._flushing > 0
            or time.monotonic() - worker.batch.opened_at >= self._limits.interval_s
        ):
            worker.send()
        if not backlog.is_empty():
            return
        if worker.batch:
            # Nobody wakes this sleep but a flush: each offer would cost a switch of threads.
            self._wake.wait(self._limits.interval_s / 8)
            self._wake.clear()
            return
        self._is_working = False
        with self._idle:
            self._idle.notify_all()
        self._is_sleeping = True
        if backlog.is_empty() and not self._stop.is_set() and not self._is_scan_due:
            self._wake.wait(FOLLOW_S if self._follow else RESCAN_S)
        self._is_sleeping = False
        self._wake.clear()

    def _guarded(self, action: Callable[[], None]) -> bool:
        """Runs `action`; an error is counted, logged once per cause, and the worker goes on."""
        try:
            action()
        except Exception as error:
            count("export.failures")
            if (cause := repr(error)) != self._last_error:
                self._last_error = cause
                _logger.exception("export: will be tried again")
            return False
        return True

    def _is_done(self) -> bool:
        return (
            self._backlog.is_empty()
            and not self._worker.batch
            and not self._is_working
            and not self._is_scan_due
        )


_forkable: weakref.WeakSet[Pipeline] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for pipeline in list(_forkable):
        pipeline._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


def live_pipeline(
    settings: Settings, store_root: Path, run: Run, *, on_span: OnSpan | None = None
) -> Pipeline | None:
    """The pipeline that `settings` asks for, not started; null where this process exports nothing. Raises `UsageProblem`."""
    bridge = settings.otel_gym
    if bridge.export != "live" or settings.otlp_endpoint is None:
        return None
    endpoint = traces_endpoint(settings.otlp_endpoint)
    if endpoint is None:
        return None
    return Pipeline(
        store_root,
        run,
        span_options(settings),
        endpoint,
        limits=pipeline_limits(settings),
        on_span=on_span,
    )


def pipeline_limits(settings: Settings) -> PipelineLimits:
    """The bounds that `settings` asks for."""
    bridge = settings.otel_gym
    return PipelineLimits(
        queue_max_spans=bridge.export_queue_max_spans,
        queue_max_bytes=bridge.export_queue_max_bytes,
        batch_max_spans=bridge.export_batch_max_spans,
        batch_max_bytes=bridge.export_batch_max_bytes,
        interval_s=bridge.export_interval,
    )
