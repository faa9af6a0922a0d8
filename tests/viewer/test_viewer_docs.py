"""The viewer's page says what the viewer does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from otel_gym.viewer.app import create_app
from otel_gym.viewer.options import ViewerOptions
from otel_gym.viewer.run_query import SORTS, STATES
from tests.viewer.server import View

PAGE = Path(__file__).resolve().parents[2] / "docs" / "viewer.md"


def _named() -> set[str]:
    text = PAGE.read_text(encoding="utf-8")
    return {
        word for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"[\w.]+", code)
    }


def test_every_key_of_the_twins_is_documented(run_dir: Path, view: View) -> None:
    """Each key of a JSON twin, down to rollouts, calls, messages and parts, is named in the reference."""
    viewer = view(run_dir)
    run = viewer.json("/run.json")
    rollout = viewer.json("/rollout/1-0-a1.json")
    call = viewer.json("/rollout/0-0/call/3.json")
    compared = viewer.json("/compare.json", a="0-0", b="0-1")
    parts: list[dict[str, Any]] = [
        run, run["run"], run["indexing"], run["totals"], run["series"], run["series"]["points"][0], run["rollouts"][0],
        rollout, rollout["rollout"], rollout["calls"][0], rollout["gaps"][0],
        rollout["attempts"][0], rollout["attempts"][0]["timeline"][0],
        call, call["call"], call["sampling"][0], call["bodies"]["request"], call["answer"][0], call["answer"][0]["parts"][0],
        compared, compared["figures"][0], compared["calls"][0], compared["first_difference"], compared["first_difference"]["a"],
    ]  # fmt: skip
    keys = {key for part in parts for key in part}
    assert keys - _named() == set()


def test_every_parameter_and_path_is_documented(run_dir: Path) -> None:
    """Sorts, states, pages and the paths of the Jaeger API are in the reference."""
    text = PAGE.read_text(encoding="utf-8")
    assert set(SORTS) | set(STATES[1:]) <= _named()
    app = create_app(ViewerOptions(run_dir, keep_index=False))
    paths = {getattr(route, "path", "") for route in app.routes}
    for path in sorted(paths):
        if path.startswith("/api/"):
            assert path.replace("{service:path}", "{service}").replace("{trace_id}", "{id}") in text
