"""The pages on rollouts and agents name what the code has, and their examples run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from otel_gym.rollouts import gaps
from otel_gym.rollouts.dispatch import RolloutFailure
from otel_gym.servers.agent import SimpleResponsesAPIAgent

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _table_codes(page: str, prefix: str) -> set[str]:
    text = (DOCS / page).read_text()
    return set(re.findall(rf"^\| `({prefix}\w+)` \|", text, re.MULTILINE))


def test_every_gap_code_is_documented() -> None:
    """The page lists exactly the gap codes that attachments can have."""
    codes = {value for name, value in vars(gaps).items() if name.isupper()}
    assert _table_codes("rollouts.md", "model_call_") == codes


def test_every_failure_code_is_documented() -> None:
    """The page lists exactly the failure codes of a dispatch."""
    codes = set(re.findall(r"^ +(agent_\w+)", RolloutFailure.__doc__ or "", re.MULTILINE))
    assert len(codes) == 6
    assert _table_codes("rollouts.md", "agent_") == codes


def test_every_helper_is_documented() -> None:
    """The page lists the helpers that an agent has."""
    text = (DOCS / "agents.md").read_text()
    named = set(re.findall(r"^\| `(\w+)(?:\(.*\))?` \|", text, re.MULTILINE))
    assert named and all(hasattr(SimpleResponsesAPIAgent, name) for name in named)
    helpers = {name for name in vars(SimpleResponsesAPIAgent) if "_for_run" in name}
    assert helpers | {"url_path_for_request", "resolve_model_base_url"} <= named


@pytest.mark.parametrize("page", ["agents.md"])
def test_python_on_the_page_runs(page: str) -> None:
    """Every Python block of the page defines what it says."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        names: dict[str, Any] = {"__name__": "page"}
        exec(compile(block, page, "exec"), names)
        assert any(isinstance(one, type) and one.__module__ == "page" for one in names.values())
