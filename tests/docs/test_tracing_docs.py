"""The pages about spans and metrics say what the code says."""

from __future__ import annotations

import importlib
import re

import pytest

from otel_gym.settings import BridgeSettings
from otel_gym.tracing.content import CUT_BYTES, DETAILS_EVENT, REFERENCE
from otel_gym.tracing.semconv import CONVENTIONS, known_attributes
from otel_gym.tracing.trace_place import LINK_KIND
from tests.docs.tracing_tables import DOCS, filled, tables


@pytest.mark.parametrize("page", list(tables()))
def test_the_tables_are_those_of_the_code(page: str) -> None:
    """Every attribute, metric and provider rule stands in its page with its sentence, and none that does not exist."""
    assert (DOCS / page).read_text(encoding="utf-8") == filled(page), (
        "`python -m tests.docs.tracing_tables` writes the tables anew"
    )


@pytest.mark.parametrize("page", ["attributes.md", "metrics.md", "tracing.md"])
def test_no_page_names_what_does_not_exist(page: str) -> None:
    """Each `otel_gym.` name in the text is an attribute, a metric, a setting or a content mark."""
    from otel_gym.tracing.metrics import metric_names

    known = {
        *known_attributes(CONVENTIONS),
        *metric_names(("genai-0.1", "genai-1.41")),
        *(f"otel_gym.{name}" for name in BridgeSettings.model_fields),
        "otel_gym.queue.name",
        CUT_BYTES,
        DETAILS_EVENT,
        REFERENCE,
        LINK_KIND,
    }
    text = (DOCS / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`(otel_gym\.[a-z_.0-9]+[a-z0-9])`", text))
    assert named
    modules = {name for name in named if name.startswith("otel_gym.tracing.")}
    for module in modules:
        importlib.import_module(module)
    assert named - modules <= known


def test_the_formulas_of_ids_are_written_down() -> None:
    """Whoever wants to compute the ids in another language finds the exact tags."""
    from otel_gym.correlation import trace_ids

    text = (DOCS / "attributes.md").read_text(encoding="utf-8")
    for tag in (trace_ids._TRACE, trace_ids._ROOT, trace_ids._CALL):
        assert tag.decode() in text
