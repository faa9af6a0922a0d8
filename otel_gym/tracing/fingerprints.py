"""Which file a record was written to: a rollout's file may be cleared and begun anew under the same name."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Final

from otel_gym.capture.written import Written
from otel_gym.errors import StoreError
from otel_gym.tracing.files import fingerprint, fingerprint_by, holds_call

KNOWN_FILES: Final = 4096
"""Files whose fingerprint a live pipeline remembers; it reads those of others again."""


class Fingerprints:
    """The fingerprints of the files of one directory that were read or written last. Used by one thread."""

    def __init__(self, directory: Path, most: int | None) -> None:
        """`most` bounds how many are remembered; null remembers all."""
        self._directory = directory
        self._most = most
        self._known: OrderedDict[str, str] = OrderedDict()

    def known(self, rollout_id: str) -> str | None:
        """The fingerprint that was noted last, null where none is remembered."""
        return self._known.get(rollout_id)

    def note(self, rollout_id: str, mark: str) -> None:
        """Remembers that of a file that was just read."""
        self._known[rollout_id] = mark
        self._known.move_to_end(rollout_id)
        if self._most is not None and len(self._known) > self._most:
            self._known.popitem(last=False)

    def of(self, written: Written) -> str:
        """That of the file that a record was written to, which may have been replaced since; empty where it cannot be known."""
        rollout_id = written.rollout_id
        call_id = written.record.get("model_call_id")
        if written.offset_bytes == 0 and (mark := fingerprint_by(call_id)) is not None:
            self.note(rollout_id, mark)
            return mark
        known = self.known(rollout_id) if written.offset_bytes else None
        if known is not None:
            return known
        try:
            mark = fingerprint(self._directory, rollout_id)
        except StoreError:
            mark = None
        if mark is None or not holds_call(
            self._directory,
            rollout_id,
            written.offset_bytes,
            written.length_bytes,
            str(call_id),
        ):
            return ""
        self.note(rollout_id, mark)
        return mark
