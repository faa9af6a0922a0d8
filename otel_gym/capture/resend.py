"""Requests that a client sent again: certain ones are marked, doubtful ones are left alone.

Certain are a client library's own retry header, and the same bytes in the same rollout within seconds of a call that failed. Everything else may be a new
call and is never merged on a guess.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

WINDOW_NS: Final = 10_000_000_000
"""How long after a failure the same bytes count as a resend, in nanoseconds; clients were seen to wait up to 4.3 s."""

_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class _Failure:
    model_call_id: str
    ended_ns: int
    count: int


class ResendTracker:
    """Remembers the latest failed calls of this process, a bounded number of them."""

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, str, bytes], _Failure] = OrderedDict()

    def failed(
        self,
        rollout_id: str,
        dialect: str,
        digest: bytes,
        model_call_id: str,
        now_ns: int,
        count: int,
    ) -> None:
        """Note a failed call. `now_ns` is of the monotonic clock; `count` is the call's own resend count."""
        key = (rollout_id, dialect, digest)
        self._failures.pop(key, None)
        self._failures[key] = _Failure(model_call_id, now_ns, count)
        while len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)

    def resend(
        self,
        rollout_id: str,
        dialect: str,
        digest: bytes | None,
        started_ns: int,
        header_count: int,
    ) -> dict[str, Any] | None:
        """The `resend` part of a record, or null where the call is not certainly a repetition."""
        failure = self._failures.get((rollout_id, dialect, digest)) if digest is not None else None
        if failure is not None and not 0 <= started_ns - failure.ended_ns <= WINDOW_NS:
            failure = None
        if header_count > 0:
            return {
                "count": header_count,
                "of": failure.model_call_id if failure else None,
                "reason": "header",
            }
        if failure is not None:
            return {"count": failure.count + 1, "of": failure.model_call_id, "reason": "same_bytes"}
        return None

    def answered(self, rollout_id: str, dialect: str, digest: bytes) -> None:
        """Note that these bytes got their answer: sent once more, they are a new call."""
        self._failures.pop((rollout_id, dialect, digest), None)

    @property
    def watching(self) -> bool:
        """Whether any failure is remembered; without one, no request needs to be hashed."""
        return bool(self._failures)


def digest_of(chunks: Iterable[bytes]) -> bytes:
    """A digest of a request body, for comparison within this process."""
    hasher = hashlib.blake2b(digest_size=16)
    for chunk in chunks:
        hasher.update(chunk)
    return hasher.digest()
