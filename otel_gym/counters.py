"""The counters of this process: what was written, exported, refused or given up, by name.

Anything that is swallowed is counted here, so that it shows up in `otel-gym doctor` and in the self-metrics. A name that is not in `COUNTERS` is a
programming error and raises `KeyError`.
"""

from __future__ import annotations

import os
import threading
from typing import Final

COUNTERS: Final[dict[str, str]] = {
    # capture
    "records.written": "Records made durable.",
    "records.incomplete": "Calls whose record could not be made durable in time, or at all.",
    "records.late": "Records that became durable only after their response was released.",
    "records.stale": "Records of a cleared attempt, kept apart in a stale file.",
    "records.torn": "Torn last lines that were repaired before an append.",
    "records.lost": "Records given up: the storage failed and the memory for waiting records was full, or the process ended.",
    "records.oversized": "Records whose body was kept as head, tail, size and digest.",
    "records.redacted": "Records with at least one field redacted before it was written.",
    "ids.invalid": "Calls served but not captured, because their rollout id breaks the grammar.",
    "calls.unprefixed": "Model calls that arrived without a rollout prefix.",
    "calls.path_repaired": "Model calls whose path lacked /v1, had it twice, or had a doubled slash.",
    "calls.websocket_refused": "WebSocket upgrades answered with 426.",
    "calls.trailing_bytes": "Response messages sent after the record of their call was closed.",
    "capture.failures": "Errors inside capture that were kept from the model call.",
    "locks.unsupported": "Appends made without a lock, because the file system refuses locks.",
    "store.failures": "File operations that the capture directory refused; the records concerned are tried again.",
    "claims.failed": "Calls that could not be claimed before they ran.",
    # dialects
    "stream.unmerged": "Stream parts that could not be merged and were kept as they came.",
    # engine
    "engine.unreachable": "Calls answered with 502 because the engine could not be reached.",
    "engine.lost": "Answers broken off because the engine was lost in the middle of them.",
    "engine.stale_connections": "Requests sent again at once, because the engine had just closed the idle connection they went out on.",
    "engine.cancelled": "Engine calls cancelled because their client went away.",
    "sampling.refused": "Calls refused because a sampling pin could not be applied to their body.",
    "sampling.overrides": "Sampling parameters whose requested value was replaced, by parameter.",
    # export
    "export.spans": "Spans that a backend accepted.",
    "export.retried": "Export requests that were sent again.",
    "export.parked": "Spans that a backend refused for good, put aside with the reason.",
    "export.deferred": "Spans left for the cursor to catch up, because the queue was full or the backend away.",
    "export.failures": "Errors inside export that were kept from the model call.",
    # rollouts
    "rollouts.failed": "Rollouts that ended in the failures file.",
    "attachments.failed": "Rollouts whose captures could not be attached.",
}
"""Every counter, with its sentence; the reference page `docs/metrics.md` lists the same names."""

_lock = threading.Lock()
_values: dict[str, int] = dict.fromkeys(COUNTERS, 0)
_parts: dict[str, dict[str, int]] = {}


def _after_fork() -> None:
    """A forked child may have been made while another thread held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def count(name: str, amount: int = 1, *, label: str | None = None) -> None:
    """Add `amount` to the counter `name`, and to its part for `label` where one is given.

    Labels come from a small closed set (a parameter's name), never from a rollout. Raises `KeyError` for a name that is not in `COUNTERS`.
    """
    with _lock:
        _values[name] += amount
        if label is not None:
            parts = _parts.setdefault(name, {})
            parts[label] = parts.get(label, 0) + amount


def counted_by_label(name: str) -> dict[str, int]:
    """The parts of the counter `name` by label; empty where it was never counted with one."""
    with _lock:
        return dict(_parts.get(name, {}))


def counted(name: str) -> int:
    """The value of the counter `name` since the process began."""
    return _values[name]


def counters() -> dict[str, int]:
    """A copy of all counters."""
    with _lock:
        return dict(_values)
