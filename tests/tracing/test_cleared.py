"""What the generation file proves of spans that no file gives."""

from __future__ import annotations

import os
import time
from pathlib import Path

from otel_gym.capture.store import CaptureStore
from otel_gym.tracing.cleared import read_cleared_calls
from otel_gym.tracing.jaeger import StoredSpan
from tests.tracing.records import gym_record


def stored(start_ns: int, parent: str = "aa" * 8) -> StoredSpan:
    """A span as a backend has it."""
    return StoredSpan("chat m", "ab" * 16, "cd" * 8, parent, 3, start_ns, start_ns, {}, False, "")


def test_only_what_a_clear_can_explain_is_explained(tmp_path: Path) -> None:
    """Spans from before the last clear are explained, as many as records were removed; younger ones are not, and neither is anything where nothing was cleared."""
    store = CaptureStore(tmp_path)
    for number in range(3):
        store.record("1-0", gym_record(number))
    assert not read_cleared_calls(tmp_path, "1-0")
    assert read_cleared_calls(tmp_path, "1-0").explain([stored(0)]) == []
    store.clear("1-0")
    now = time.time_ns()
    old, new = [stored(now - 10**9 - number) for number in range(3)], stored(now + 10**9)
    cleared = read_cleared_calls(tmp_path, "1-0")
    assert cleared.removed == 3
    assert cleared.explain([*old, new]) == old
    assert cleared.explain([*old, stored(now - 10**9, parent="")])[3:], "a root is no record"
    assert cleared.explain([*old, stored(now - 10**9)]) == [], "one more than was removed"
    store.close()


def test_a_copied_directory_explains_no_more(tmp_path: Path) -> None:
    """A copy may give the generation file a younger time: a call that stands in the file shows that the clear was before it."""
    store = CaptureStore(tmp_path)
    store.record("1-0", gym_record(1))
    store.clear("1-0")
    store.close()
    now = time.time_ns()
    later = now + 3600 * 10**9
    os.utime(tmp_path / ".otel-gym" / "generations" / "1-0", ns=(later, later))
    cleared = read_cleared_calls(tmp_path, "1-0")
    cleared.note_current(now + 10**9)
    lost = stored(now + 2 * 10**9)
    assert cleared.explain([lost]) == []
    assert cleared.explain([stored(now - 10**9)])
