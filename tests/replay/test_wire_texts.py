"""Kept texts of columns."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from otel_gym.replay import project
from otel_gym.replay.wire_texts import WIRE_TEXTS, WireTexts
from tests.replay.samples import BUNDLE, SCOPE, message, turn


def test_a_text_is_made_once_while_it_is_kept() -> None:
    """A kept text is given again; the one used longest ago is made anew once the bound is reached."""
    texts = WireTexts(10)
    made: list[str] = []

    def get(name: str) -> bytes:
        return texts.get(name, lambda: made.append(name) or name.encode() * 4)  # type: ignore[func-returns-value]

    for name in ("a", "b", "a", "c", "a", "b"):
        assert get(name) == name.encode() * 4
    assert made == ["a", "b", "c", "b"]
    assert texts.kept_bytes == 8


def test_a_text_above_the_bound_is_given_and_not_kept() -> None:
    """A text that is larger than everything that may be kept takes no memory afterwards."""
    texts = WireTexts(10)
    assert texts.get("a", lambda: bytes(11)) == bytes(11)
    assert texts.kept_bytes == 0


def test_the_bound_holds_among_threads() -> None:
    """Threads that make the same and other texts at once leave the count right."""
    texts = WireTexts(1000)

    def work() -> None:
        for number in range(3000):
            assert len(texts.get(number % 70, lambda: bytes(20))) == 20

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts.kept_bytes == 1000
    texts.clear()
    assert texts.kept_bytes == 0


FORKED = """
import json, os, signal
from otel_gym.replay import project
from otel_gym.replay.wire_texts import WIRE_TEXTS
from tests.replay.samples import BUNDLE, SCOPE, message, turn

item = message(**BUNDLE, routed_experts=[3] * 2000)
with WIRE_TEXTS._lock:
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(0 if json.loads(project([turn(item)], SCOPE).to_json()) == [item] else 1)
_, status = os.waitpid(child, 0)
raise SystemExit(abs(os.waitstatus_to_exitcode(status)))
"""


def test_a_forked_process_can_write_texts() -> None:
    """A process that was forked while the lock was held projects like any other."""
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", FORKED], cwd=root, timeout=120).returncode == 0


def test_equal_bytes_of_another_kind_have_another_text() -> None:
    """A kept text is of one shape and type, even where the bytes of two columns are the same."""
    arrays: list[Any] = [[1] * 1024, [[1] * 512] * 2, [257] * 512]
    items = [message(**BUNDLE, routed_experts=array) for array in arrays]
    digests = {turn(item).columns_of(0)["routed_experts"].digest for item in items}
    assert len(digests) == 1
    WIRE_TEXTS.clear()
    for _ in range(2):
        assert json.loads(project([turn(*items)], SCOPE).to_json()) == items
    assert WIRE_TEXTS.kept_bytes > 0
