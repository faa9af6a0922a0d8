"""The reference page names every error, gap code and column type that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_gym import replay
from otel_gym.replay import errors, gaps, parts, policy_client
from otel_gym.replay.json_values import dump_json
from tests.replay.samples import BUNDLE, message, response

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "replay.md").read_text()


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_on_the_page(name: str) -> None:
    """Each error class has its name in the reference."""
    assert f"`{name}`" in PAGE or f"otel_gym.errors.{name}`" in PAGE


def test_the_gap_codes_are_those_of_the_page() -> None:
    """The table of gap codes has every code and no other."""
    section = PAGE.split("## Gap codes")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE)) == gaps.GAP_CODES


def test_the_unsupported_calls_are_those_of_the_page() -> None:
    """Every call type that the client can't execute is named."""
    (row,) = [line for line in PAGE.splitlines() if "`UnsupportedClientCall` for" in line]
    named = set(re.findall(r"`(\w+_call)`", row))
    assert named == parts.CLIENT_EXECUTED | {parts.FUNCTION_CALL}


def test_the_public_names_are_sorted_and_there() -> None:
    """`__all__` is sorted, and each of its names exists."""
    assert list(replay.__all__) == sorted(replay.__all__)
    assert all(hasattr(replay, name) for name in replay.__all__)
    assert policy_client.PolicyClient is replay.PolicyClient


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first example does what it says."""
    monkeypatch.chdir(tmp_path)
    example = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    names = {"response_bytes": dump_json(response(message(**BUNDLE)))}
    exec(example[1], names)
    assert (tmp_path / "histories.db").exists()
    assert names["projection"].gaps == frozenset()  # type: ignore[attr-defined]
