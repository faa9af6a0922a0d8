"""Fresh model call ids: version 4 UUIDs, drawn many at a time.

Each draw from the system's random source gives the interpreter lock away, and with a busy writer thread it comes back late; one draw serves many calls.
"""

from __future__ import annotations

import os
from typing import Final

_DRAWN_AT_ONCE: Final = 256
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

_ready: list[str] = []


def new_call_id() -> str:
    """A model call id that nobody else has: 32 hex digits."""
    try:
        return _ready.pop()
    except IndexError:
        drawn = os.urandom(16 * _DRAWN_AT_ONCE).hex()
        _ready.extend(_version_4(drawn[at : at + 32]) for at in range(32, len(drawn), 32))
        return _version_4(drawn[:32])


def _version_4(digits: str) -> str:
    """Random hex digits with the version and the variant in their places (RFC 9562 5.4)."""
    return f"{digits[:12]}4{digits[13:16]}{_VARIANTS[digits[16]]}{digits[17:]}"


# A forked child must not hand out what its parent will hand out.
os.register_at_fork(after_in_child=_ready.clear)
