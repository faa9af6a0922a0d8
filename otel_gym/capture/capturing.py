"""What all exchanges of one model server share: the writer, the run, and what is recorded of a caller."""

from __future__ import annotations

import fnmatch
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from otel_gym.capture.client import HeaderPicker
from otel_gym.capture.resend import ResendTracker
from otel_gym.capture.writer import RecordWriter
from otel_gym.correlation import trace_ids
from otel_gym.correlation.rollout_id import why_invalid
from otel_gym.correlation.run import Run
from otel_gym.correlation.traceparent import parse_traceparent
from otel_gym.counters import count
from otel_gym.settings import BridgeSettings

log: Final = logging.getLogger("otel_gym.capture")


class Capture:
    """Capture for one model server: makes the parts of a record that do not depend on the exchange's bytes."""

    def __init__(
        self,
        writer: RecordWriter,
        run: Run,
        settings: BridgeSettings,
        *,
        model_server_name: str | None,
        engine: Mapping[str, Any] | None = None,
    ) -> None:
        self.writer = writer
        self.run = run
        self.settings = settings
        self.engine = dict(engine) if engine else None
        self.model_ref = (
            {"type": "responses_api_models", "name": model_server_name}
            if model_server_name
            else None
        )
        self.headers = HeaderPicker(settings.span_headers, settings.span_baggage)
        self.resends = ResendTracker()
        self._refused: set[str] = set()

    def accepts(self, rollout_id: str) -> bool:
        """Whether calls of this rollout are captured; a refused id is counted, and logged once."""
        reason = why_invalid(rollout_id)
        patterns = self.settings.capture_rollout_ids
        if (
            reason is None
            and patterns
            and not any(fnmatch.fnmatchcase(rollout_id, one) for one in patterns)
        ):
            reason = "matches no pattern of otel_gym.capture_rollout_ids"
        if reason is None:
            return True
        count("ids.invalid")
        self.writer.note_invalid_id(rollout_id)
        if reason not in self._refused:
            self._refused.add(reason)
            log.warning(
                "calls of rollout id %.80r are served but not captured: it %s", rollout_id, reason
            )
        return False

    def trace_of(
        self, rollout_id: str, model_call_id: str, traceparent: str | None, tracestate: str | None
    ) -> dict[str, Any]:
        """The `trace` part of a record: the call's own ids, its parent, and the caller's context as it arrived."""
        own_trace = trace_ids.trace_id(self.run.run_id, rollout_id)
        trace: dict[str, Any] = {
            "trace_id": own_trace,
            "span_id": trace_ids.span_id(model_call_id),
            "parent_span_id": trace_ids.root_span_id(self.run.run_id, rollout_id),
            "inbound": None,
            "mode": self.settings.trace_context,
        }
        inbound = parse_traceparent(traceparent) if traceparent else None
        if inbound is None:
            return trace
        trace["inbound"] = {"traceparent": traceparent, "tracestate": tracestate or None}
        if inbound.trace_id == own_trace or self.settings.trace_context == "parent":
            trace["trace_id"] = inbound.trace_id
            trace["parent_span_id"] = inbound.span_id
            trace["mode"] = "parent"
        return trace


def wall_and_monotonic_ns() -> tuple[int, int]:
    """(wall clock, monotonic clock), read together, in nanoseconds.

    A stamp is wall time at the start plus monotonic time since, so that a clock that is set back in the middle of a call cannot make it end before it began.
    """
    return time.time_ns(), time.perf_counter_ns()
