"""CONTRIBUTING draws the structure as it is enforced."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_order_of_the_rooms_is_the_contracts() -> None:
    """The line of arrows names the layers of the import contract, lowest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [layers] = [one["layers"] for one in contracts if one["type"] == "layers"]
    enforced = [{name.strip().split(".")[1] for name in layer.split("|")} for layer in layers]
    [line] = [line for line in TEXT.splitlines() if line.startswith("    errors →")]
    drawn = [{name.strip() for name in step.split(",")} for step in line.split("→")]
    assert drawn == enforced[::-1]


def test_every_room_has_a_row() -> None:
    """Each package is named in the table, and nothing that is not there."""
    rooms = {path.parent.name for path in (ROOT / "otel_gym").glob("*/__init__.py")}
    rows = {line.split("`")[1].rstrip("/") for line in TEXT.splitlines() if line.startswith("| `")}
    assert rows == rooms
