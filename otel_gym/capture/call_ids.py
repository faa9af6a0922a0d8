"""Fresh model call ids: version 4 UUIDs, drawn many at a time.

Each draw from the system's random source gives the interpreter lock away, and with a busy writer thread it comes back late; one draw serves many calls.
"""

from __future__ import annotations

import os
import uuid
from typing import Final

_DRAWN_AT_ONCE: Final = 256

_ready: list[str] = []


def new_call_id() -> str:
    """A model call id that nobody else has: 32 hex digits."""
    try:
        return _ready.pop()
    except IndexError:
        drawn = os.urandom(16 * _DRAWN_AT_ONCE)
        ids = [
            uuid.UUID(bytes=drawn[at : at + 16], version=4).hex for at in range(0, len(drawn), 16)
        ]
        _ready.extend(ids[1:])
        return ids[0]


# A forked child must not hand out what its parent will hand out.
os.register_at_fork(after_in_child=_ready.clear)
