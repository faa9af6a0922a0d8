"""A record that has become durable, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Written(NamedTuple):
    """One durable line of a capture file; what the writer tells its listeners."""

    rollout_id: str
    record: Mapping[str, Any]
    """The raw record, as a mapping equal to the line's JSON value."""
    path: Path
    offset_bytes: int
    """Where the line begins in the (uncompressed) file."""
    length_bytes: int
    """Length of the line with its newline."""
    stale: bool = False
    """Whether it went to the stale file, because its attempt had been cleared."""
