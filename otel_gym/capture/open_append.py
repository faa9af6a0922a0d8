"""The calls of a batch while their lines are being appended to one file and synced."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_gym.capture.appender import Appender
from otel_gym.capture.job import Job
from otel_gym.capture.lanes import Batch
from otel_gym.capture.syncing import Ended
from otel_gym.capture.written import Written
from otel_gym.errors import StoreError


@dataclass(slots=True, eq=False)
class OpenAppend:
    """A batch whose lines are being appended and synced."""

    batch: Batch
    jobs: list[Job]
    appender: Appender
    before: int
    """Length of the file before the append."""
    stale: bool
    block: bytes = b""
    """What the syncer is to append; empty where it was appended already."""
    offsets: list[int] = field(default_factory=list)
    """Where each job's line begins."""
    error: Exception | None = None
    write_s: float = 0.0
    """How long the append took, in seconds."""
    submitted_s: float = 0.0
    """When its sync was asked for, on the clock of `time.perf_counter`."""

    def tell_jobs(self) -> None:
        """Note in each job where its record stands; only once it is durable, since that is what `written` means."""
        path = self.appender.file_path
        for job, offset in zip(self.jobs, self.offsets, strict=True):
            assert job.raw is not None
            job.written = Written(
                job.claim.rollout_id, job.raw, path, offset, len(job.line), self.stale
            )

    def end(self, ended: Ended) -> None:
        """Its sync has ended. Of a block that was taken in part, the rest is appended here."""
        self.error = ended.error
        if not self.block or self.error is not None:
            return
        try:
            if ended.written < len(self.block):
                self.appender.write_rest(self.block, ended.written)
                self.appender.sync()
            self.appender.appended(self.block)
        except (OSError, StoreError) as error:
            self.error = error
