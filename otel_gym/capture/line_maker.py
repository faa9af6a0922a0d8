"""From a finished call to its line, whatever its bodies hold."""

from __future__ import annotations

from collections.abc import Callable

from otel_gym.capture.job import Job
from otel_gym.capture.line import encode_line
from otel_gym.capture.producer_state import ProducerState
from otel_gym.capture.raw_record import build_raw_record
from otel_gym.capture.redact import Redactor
from otel_gym.capture.waking import wake
from otel_gym.counters import count


class LineMaker:
    """Makes the lines of one writer's calls."""

    def __init__(self, redactor: Redactor, state: ProducerState, nudge: Callable[[], None]) -> None:
        self._redactor = redactor
        self._state = state
        self._nudge = nudge

    def make(self, job: Job) -> bool:
        """Make the job's line; false where that is impossible and the job was given up."""
        if job.line or job.facts is None:
            return not job.dropped
        try:
            raw = build_raw_record(job.facts)
            if self._redactor:
                raw, redacted = self._redactor.apply(raw)
                if redacted:
                    count("records.redacted")
            line = encode_line(raw)
        except Exception as error:  # noqa: BLE001 - whatever a body holds must not stop the writer
            count("capture.failures")
            self._state.report("a record cannot be made", error)
            self._state.lose(job, f"the record cannot be made: {type(error).__name__}")
            self._nudge()
            wake([job])
            return False
        job.raw = raw
        job.line = line if line.endswith(b"\n") else line + b"\n"
        job.facts = None
        return True
