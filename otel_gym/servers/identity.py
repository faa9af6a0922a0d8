"""Which rollout the code that runs now belongs to, for log lines and spans, whether or not anything is captured."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from otel_gym.capture import current
from otel_gym.capture.current import current_rollout_id


@contextmanager
def rollout_identity(rollout_id: str | None) -> Iterator[None]:
    """Make `rollout_id` what `current_rollout_id()` answers in this task and the tasks that it starts."""
    token = current._rollout.set(rollout_id)
    try:
        yield
    finally:
        current._rollout.reset(token)


class RolloutIdFilter(logging.Filter):
    """Gives every log record the attribute `rollout_id`, empty outside a rollout; for a handler's format string."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.rollout_id = current_rollout_id() or ""
        return True
