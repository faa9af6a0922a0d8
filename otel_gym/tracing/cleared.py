"""Which spans of a backend are of cleared attempts, as far as the files prove it.

Clearing a rollout raises its generation and removes every record that it then has; what a call that began before still writes goes to the stale file and is
never exported. So a span whose call began before the last clear is of a cleared attempt, and there can be no more of them than records were removed.
The generation file says both: how many records, and, by its own time stamp, when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from otel_gym.capture.fence import read_cleared
from otel_gym.capture.layout import Layout
from otel_gym.tracing.jaeger import StoredSpan


@dataclass(slots=True)
class Cleared:
    """The clears of one rollout; false where there was none."""

    removed: int = 0
    """Records that all clears together removed."""
    before_ns: int = 0
    """When the last of them was, Unix nanoseconds."""

    def __bool__(self) -> bool:
        return self.before_ns > 0

    def note_current(self, start_ns: int) -> None:
        """A call that stands in the file began then, so the last clear was before: a directory that was copied may have younger time stamps."""
        self.before_ns = min(self.before_ns, start_ns)

    def is_before(self, span: StoredSpan) -> bool:
        """Whether `span` began before the last clear."""
        return span.start_ns < self.before_ns

    def explain(self, spans: Sequence[StoredSpan]) -> list[StoredSpan]:
        """Those of `spans`, which stand in no file, that a clear has removed; none where they are more than were removed."""
        before = [span for span in spans if self.is_before(span)]
        calls = [span for span in before if span.parent_span_id]
        return before if len(calls) <= self.removed else []


def read_cleared_calls(directory: Path, rollout_id: str) -> Cleared:
    """What the generation file of `rollout_id` says; nothing where it cannot be read."""
    generations = Layout(directory).generations
    try:
        stamp_ns = (generations / rollout_id).stat().st_mtime_ns
        return Cleared(read_cleared(generations, rollout_id), stamp_ns)
    except OSError:
        return Cleared()
