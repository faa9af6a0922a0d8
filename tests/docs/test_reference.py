"""The reference pages say what the code says."""

from __future__ import annotations

import pytest

from tools.reference import DOCS, PAGES, generated


@pytest.mark.parametrize("page", PAGES)
def test_the_generated_parts_of_a_page_are_the_codes(page: str) -> None:
    """Every setting and option stands in its page with its default and its sentence; `python -m tools.reference` writes them anew."""
    assert (DOCS / page).read_text(encoding="utf-8") == generated(page)


def test_every_setting_has_a_sentence() -> None:
    """No setting is without a description that ends as a sentence does."""
    from otel_gym.settings import BridgeSettings, ModelServerSettings, Settings

    for model in (BridgeSettings, ModelServerSettings, Settings):
        for name, field in model.model_fields.items():
            assert field.description and field.description.endswith("."), name
