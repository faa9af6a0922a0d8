"""Tables of the index."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple


class CallRow(NamedTuple):
    """A call as it stands in the index; null where its line does not say."""

    number: int
    """Position among the lines of the file, from 0, blank ones left out."""
    offset_bytes: int
    length_bytes: int
    model_call_id: str | None
    span_id: str
    span_name: str
    span_error: int
    foreign_trace: str | None
    """Trace of its span where that is not the rollout's."""
    start_us: int
    end_us: int
    dialect: str | None
    model: str | None
    started_at: float | None
    completed_at: float | None
    latency_ms: float | None
    ttft_ms: float | None
    streamed: int
    terminal: str | None
    status_code: int | None
    error: str | None
    failed: int
    truncated: int
    finish_reason: str | None
    tokens_in: int | None
    tokens_out: int | None
    tokens_reasoning: int | None
    cached_tokens: int | None
    cache_creation_tokens: int | None
    tool_calls: int
    resend_of: str | None
    messages: int
    chain: str
    """Digest of all messages of the request."""
    extends: int | None
    """The earlier call whose messages the request begins with."""
    repeated: int
    """How many messages those are."""
    gist: str
    """The beginning of the answer."""


CALL_COLUMNS: Final = CallRow._fields
"""Columns of a call besides its rollout, in order."""

STATE_COLUMNS: Final = (
    "plain_size",
    "plain_mtime_ns",
    "plain_inode",
    "packed_size",
    "packed_mtime_ns",
    "packed_inode",
    "record_size",
    "record_mtime_ns",
    "incomplete",
)
"""What the files of a rollout looked like when they were indexed; null for a file that is not there."""

PROGRESS_COLUMNS: Final = ("indexed_bytes", "lines", "damaged", "head", "tail")
"""How far a file is indexed, and digests of the beginning and end of that part, to know it again."""

NAME_COLUMNS: Final = ("trace_id", "base", "task", "task_order", "rollout_order", "attempt")

SUMMARY_COLUMNS: Final = (
    "calls",
    "errors",
    "truncated",
    "tokens_in",
    "tokens_in_known",
    "tokens_out",
    "tokens_out_known",
    "cached_tokens",
    "cached_of",
    "started_at",
    "completed_at",
    "duration_ms",
    "model_ms",
    "ttft_ms",
    "models",
    "reward",
    "error",
    "agent",
    "first_us",
    "last_us",
)
"""`first_us` and `last_us` are the earliest and latest start of its spans, its root included."""

ROLLOUT_COLUMNS: Final = (
    "rollout_id",
    *NAME_COLUMNS,
    *STATE_COLUMNS,
    *PROGRESS_COLUMNS,
    *SUMMARY_COLUMNS,
)

SCHEMA: Final = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE rollouts(id INTEGER PRIMARY KEY, {", ".join(ROLLOUT_COLUMNS)});
CREATE UNIQUE INDEX rollouts_rollout_id ON rollouts(rollout_id);
CREATE INDEX rollouts_trace_id ON rollouts(trace_id);
CREATE INDEX rollouts_base ON rollouts(base);
CREATE INDEX rollouts_task ON rollouts(task, rollout_order, attempt);
CREATE INDEX rollouts_started_at ON rollouts(started_at DESC, rollout_id);
CREATE INDEX rollouts_first_us ON rollouts(first_us);
CREATE TABLE calls(rollout INTEGER NOT NULL, {", ".join(CALL_COLUMNS)}, PRIMARY KEY(rollout, number)) WITHOUT ROWID;
CREATE INDEX calls_over_time ON calls(started_at, tokens_in, tokens_out, cached_tokens, failed, ttft_ms);
CREATE INDEX calls_by_name ON calls(span_name);
CREATE INDEX calls_foreign ON calls(foreign_trace) WHERE foreign_trace IS NOT NULL;
"""

VERSION: Final = f"1-{hashlib.sha256(SCHEMA.encode()).hexdigest()[:12]}"
"""Changes with every column; its number rises whenever something else is put into one. An index of another version is thrown away."""
