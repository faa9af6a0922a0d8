"""A disk that refuses: the model call does not notice, and whoever looks later does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from otel_gym.capture.store import CaptureStore
from otel_gym.counters import counted
from otel_gym.servers.model import build_model_server
from otel_gym.settings import ModelServerSettings
from tests.engines.recording import RecordingEngine, json_script
from tests.engines.serving import Served
from tests.servers.test_model import lines, settings_for

ANSWER = {"id": "x", "object": "response", "status": "completed", "output": [], "pad": "x" * 20_000}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)],
        capture_output=True,
        text=True,
    )
    if made.returncode != 0:
        reason = f"cannot mount a small file system here: {made.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_leaves_the_call_alone_and_a_mark(small_disk: Path) -> None:
    """Calls beyond the disk's end are answered whole; the rollout is marked or the loss counted, and records come back with room."""
    directory = small_disk / "captures"
    settings = settings_for(directory, capture_durability_timeout=0.3)
    before = counted("records.incomplete")
    with RecordingEngine() as engine:
        engine.default = json_script(ANSWER)
        with Served(
            build_model_server(settings, ModelServerSettings(base_url=engine.url))
        ) as served:
            url = f"{served.url}/ng-rollout/7-2/v1/responses"
            for _ in range(8):
                answer = httpx.post(url, json={"model": "m"}, timeout=30)
                assert answer.status_code == 200 and answer.json() == ANSWER
            written = len(lines(directory))
            assert 0 < written < 8
            assert counted("records.incomplete") > before
            assert CaptureStore(directory).is_incomplete("7-2")
            subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
            assert httpx.post(url, json={"model": "m"}, timeout=30).status_code == 200
    assert len(lines(directory)) > written, "no record came after the disk had room again"


def test_a_read_only_disk_leaves_the_call_alone_and_a_count(small_disk: Path) -> None:
    """With the directory read-only from one moment to the next, answers are unchanged and the loss is counted."""
    directory = small_disk / "captures"
    settings = settings_for(directory, capture_durability_timeout=0.3)
    with RecordingEngine() as engine:
        engine.default = json_script({"id": "x"})
        with Served(
            build_model_server(settings, ModelServerSettings(base_url=engine.url))
        ) as served:
            subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
            before = counted("records.incomplete")
            answer = httpx.post(f"{served.url}/ng-rollout/7-2/v1/responses", json={}, timeout=30)
            assert answer.status_code == 200 and answer.json() == {"id": "x"}
            assert counted("records.incomplete") > before
            subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
