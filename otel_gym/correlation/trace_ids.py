"""Trace and span ids, computed from names: any process, in any language, comes to the same ones.

A trace is a rollout of a run; a span is a model call. See `docs/attributes.md` for the formulas.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

_TRACE: Final = b"otel-gym/trace/1"
_ROOT: Final = b"otel-gym/root/1"
_CALL: Final = b"otel-gym/span/1"
_HEX32: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


@lru_cache(maxsize=8192)
def trace_id(run_id: str, rollout_id: str) -> str:
    """The trace of a rollout: 32 hex digits of SHA-256 over the run's and the rollout's ids."""
    return _digest(_TRACE, run_id, rollout_id)[:32]


@lru_cache(maxsize=8192)
def root_span_id(run_id: str, rollout_id: str) -> str:
    """The span of the rollout itself, parent of its model calls: 16 hex digits."""
    return _digest(_ROOT, run_id, rollout_id)[:16]


def span_id(model_call_id: str) -> str:
    """The span of a model call: the first 16 hex digits of its id, or of the id's digest where the id is not 32 hex digits or those digits are zero."""
    if _HEX32.fullmatch(model_call_id) and model_call_id[:16] != "0" * 16:
        return model_call_id[:16]
    return _digest(_CALL, model_call_id)[:16]


def _digest(tag: bytes, *names: str) -> str:
    return hashlib.sha256(
        b"\x00".join([tag, *(name.encode("utf-8", "surrogatepass") for name in names)])
    ).hexdigest()
