"""The reference page of sampling says what the table says."""

from __future__ import annotations

import re
from pathlib import Path

from otel_gym.dialects.names import DialectName
from otel_gym.sampling.parameters import PARAMETERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sampling.md"
COLUMNS: tuple[DialectName, ...] = ("chat", "responses", "messages", "completions")


def test_the_page_lists_the_table() -> None:
    """Every parameter stands in the page once, with its values and its names on each path, and no other does."""
    section = PAGE.read_text(encoding="utf-8").split("## Names")[1].split("## In the record")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    assert sorted(row[0].strip("`") for row in rows) == sorted(PARAMETERS)
    for row in rows:
        parameter = PARAMETERS[row[0].strip("`")]
        rule = (parameter.problem(object()) or "").removeprefix("must be ")
        assert re.sub(r"\b(an?) ", "", rule) == row[1]
        columns = row[2:] or [f"`{parameter.name}`"] * len(COLUMNS)
        for dialect, cell in zip(COLUMNS, columns, strict=True):
            assert tuple(re.findall(r"`(\w+)`", cell)) == parameter.names.get(dialect, ())
