"""The model call that is being served, for whatever runs below the capture middleware.

An engine adapter finds it here, to add what only it knows (sampling as sent, outcome) and to take what it needs (trace context for the engine).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class CurrentCall:
    """The call in flight. Without capture there is none; with it, `notes`, `sampling` and `outcome` end in the record."""

    rollout_id: str
    model_call_id: str
    dialect: str
    trace_id: str
    span_id: str
    path: str
    """The engine's true path of this call, such as `/v1/responses`."""
    tracestate: str | None = None
    """The caller's tracestate where its trace is continued, else null."""
    sampling: Mapping[str, Any] | None = None
    outcome: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def traceparent(self) -> str:
        """W3C traceparent that makes this call's span the parent of what the engine records."""
        return f"00-{self.trace_id}-{self.span_id}-01"


_rollout: ContextVar[str | None] = ContextVar("otel_gym_rollout_id", default=None)
_call: ContextVar[CurrentCall | None] = ContextVar("otel_gym_call", default=None)


def current_rollout_id() -> str | None:
    """The rollout whose request is being served, on captured and plainly forwarded paths alike."""
    return _rollout.get()


def current_call() -> CurrentCall | None:
    """The captured call that is being served, null outside one."""
    return _call.get()
