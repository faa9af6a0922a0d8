"""Tables of the index."""

from __future__ import annotations

import hashlib
from typing import Final

CALL_COLUMNS: Final = (
    "number",
    "offset_bytes",
    "length_bytes",
    "model_call_id",
    "span_id",
    "span_name",
    "span_error",
    "foreign_trace",
    "start_us",
    "end_us",
    "dialect",
    "model",
    "started_at",
    "completed_at",
    "latency_ms",
    "ttft_ms",
    "streamed",
    "terminal",
    "status_code",
    "error",
    "failed",
    "truncated",
    "finish_reason",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "cached_tokens",
    "cache_creation_tokens",
    "tool_calls",
    "resend_of",
    "messages",
    "chain",
    "extends",
    "repeated",
    "gist",
)
"""Columns of a call besides its rollout, in order. `foreign_trace` is the trace of its span where that is not the rollout's. `chain` is the digest of all messages of the request; `extends` is the earlier call whose messages the
request begins with, and `repeated` how many those are; `gist` is the beginning of the answer."""

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
