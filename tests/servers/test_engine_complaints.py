"""Warnings are said once for each cause."""

from __future__ import annotations

import pytest

from otel_gym.servers.complaints import Complaints


def test_said_again_only_after_it_was_well(caplog: pytest.LogCaptureFixture) -> None:
    """A cause is logged once; when it has been well in between, once more."""
    complaints = Complaints()
    for _ in range(3):
        complaints.say("down", "the engine is down")
    complaints.say("other", "something else")
    complaints.well("down")
    complaints.say("down", "the engine is down")
    assert [record.args for record in caplog.records] == [
        ("the engine is down",),
        ("something else",),
        ("the engine is down",),
    ]
