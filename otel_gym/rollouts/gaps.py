"""Gaps: what an attachment can't vouch for, and why.

gap `{code[, detail]}`
├── model_call_capture_no_records           nothing was captured for the id
├── model_call_capture_records_unreadable   damaged lines; detail `count=N`
├── model_call_capture_incomplete           the marker says that a call may be missing
├── model_call_capture_unreadable           the file could not be read at all; detail says why
└── known only to our ledger
    ├── model_call_capture_pending          calls still in flight when the wait was over; `count=N`
    ├── model_call_capture_lost             calls of a dead producer, or given up; `count=N`
    ├── model_call_capture_stale            late records of a cleared attempt, kept apart; `count=N`
    ├── model_call_prefix_missing           the agent says it made calls, and none arrived under its id; `agent=N`
    └── model_call_count_differs            the agent says it made more calls than were captured; `agent=N captured=M`
"""

from __future__ import annotations

from typing import Final

NO_RECORDS: Final = "model_call_capture_no_records"
RECORDS_UNREADABLE: Final = "model_call_capture_records_unreadable"
INCOMPLETE: Final = "model_call_capture_incomplete"
UNREADABLE: Final = "model_call_capture_unreadable"
PENDING: Final = "model_call_capture_pending"
LOST: Final = "model_call_capture_lost"
STALE: Final = "model_call_capture_stale"
PREFIX_MISSING: Final = "model_call_prefix_missing"
COUNT_DIFFERS: Final = "model_call_count_differs"

Gap = dict[str, str]
"""`code`, and `detail` where there is one."""


def gap(code: str, detail: str | None = None) -> Gap:
    """One gap."""
    return {"code": code} if detail is None else {"code": code, "detail": detail}
