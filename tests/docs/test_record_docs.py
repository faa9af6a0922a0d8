"""`docs/record.md` says of every key, field and category what the code says, and of no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from otel_gym.capture.categories import CATEGORIES
from otel_gym.capture.record import CaptureRecord, ModelCallRecord

PAGE = Path(__file__).resolve().parents[2] / "docs" / "record.md"


def table(heading: str) -> dict[str, str]:
    """First and last column of the first table under a heading."""
    text = PAGE.read_text("utf-8").split(f"\n## {heading}\n", 1)[1]
    rows = re.search(r"\n\|[^\n]*\n\|-[^\n]*\n((?:\|[^\n]*\n)+)", text)
    assert rows is not None
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[1].splitlines()]
    return {one[0].strip("`"): one[-1].strip(" |") for one in cells}


@pytest.mark.parametrize(
    ("heading", "model"), [("The raw line", CaptureRecord), ("The derived record", ModelCallRecord)]
)
def test_every_field_is_described_as_in_the_code(heading: str, model: type[BaseModel]) -> None:
    """Names, order and sentences are the same."""
    described = table(heading)
    fields = {field.alias or name: field.description for name, field in model.model_fields.items()}
    assert described == fields and list(described) == list(fields)


def test_every_category_is_described() -> None:
    """All categories and no other."""
    assert sorted(table("Error categories")) == sorted(CATEGORIES)
