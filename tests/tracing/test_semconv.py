"""The convention tables, checked against what the installed packages say and against each other."""

from __future__ import annotations

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, openai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from otel_gym.settings import SEMCONV_VERSIONS
from otel_gym.tracing.call_metrics import LABELS
from otel_gym.tracing.request_facts import OPERATIONS
from otel_gym.tracing.semconv import CONVENTIONS, deprecated_names, known_attributes, naming
from otel_gym.tracing.semconv_genai import GENAI_0_1, GENAI_1_41
from otel_gym.tracing.semconv_own import OWN


def constants(module: object, prefix: str) -> set[str]:
    return {
        value
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and value.startswith(prefix)
    }


def test_the_settings_know_the_same_versions() -> None:
    """Every version that a person may choose has a table, and every table can be chosen."""
    assert set(SEMCONV_VERSIONS) == set(CONVENTIONS)


def test_names_of_1_41_are_those_of_the_official_package() -> None:
    """Each gen_ai and openai attribute of the 1.41 table is a constant of the semantic conventions package."""
    official = constants(gen_ai_attributes, "gen_ai.") | constants(openai_attributes, "openai.")
    assert set(GENAI_1_41.attributes) <= official


def test_operations_and_providers_are_those_of_the_official_package() -> None:
    """Well-known values of the table are well-known upstream, and we emit only well-known operations."""
    operations = {each.value for each in gen_ai_attributes.GenAiOperationNameValues}
    providers = {each.value for each in gen_ai_attributes.GenAiProviderNameValues}
    table = GENAI_1_41.attributes
    assert set(table["gen_ai.operation.name"].enum) - operations <= {
        "fetch_response",
        "invoke_workflow",
        "plan",
        "retrieval",
    }
    assert providers >= set(table["gen_ai.provider.name"].enum) - {"moonshot_ai"}
    assert set(OPERATIONS.values()) | {"chat", "invoke_agent"} <= operations


def test_the_old_metrics_are_those_of_the_official_package() -> None:
    """Each metric of the 1.41 table is known upstream, or is a chunk metric that 1.41 added."""
    official = constants(gen_ai_metrics, "gen_ai.")
    assert set(GENAI_1_41.metrics) - official <= {
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.client.operation.time_per_output_chunk",
    }
    assert not set(GENAI_0_1.metrics) & set(GENAI_1_41.metrics)


def test_the_versions_differ_where_the_standard_says() -> None:
    """Between 1.41 and 0.1 the cache attribute was renamed, top_k became an integer, and a few names are new."""
    new, old = set(GENAI_0_1.attributes), set(GENAI_1_41.attributes)
    assert old - new == {"gen_ai.usage.cache_creation.input_tokens"}
    assert "gen_ai.usage.cache_write.input_tokens" in new - old
    assert GENAI_0_1.attributes["gen_ai.request.top_k"].type == "int"
    assert GENAI_1_41.attributes["gen_ai.request.top_k"].type == "double"


def test_the_first_version_is_primary() -> None:
    """Schema URL and types follow the first; the others only add names."""
    both = naming(("genai-0.1", "genai-1.41"))
    assert both.schema_url == GENAI_0_1.schema_url
    assert both.names["gen_ai.usage.cache_write.input_tokens"] == (
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation.input_tokens",
    )
    assert "gen_ai.request.model" not in both.names, "where they agree nothing is written twice"
    turned = naming(("genai-1.41", "genai-0.1"))
    assert turned.schema_url == GENAI_1_41.schema_url
    assert turned.doubles == {"gen_ai.request.top_k"}


def test_a_name_that_a_chosen_version_allows_is_not_deprecated() -> None:
    """cache_creation is deprecated under 0.1 alone, and fine where 1.41 is chosen beside it."""
    name = "gen_ai.usage.cache_creation.input_tokens"
    assert name in deprecated_names(["genai-0.1"])
    assert name not in deprecated_names(["genai-0.1", "genai-1.41"])


@pytest.mark.parametrize("name", list(CONVENTIONS))
def test_every_entry_explains_itself(name: str) -> None:
    """Each attribute has one sentence of meaning, and what other tables call deprecated is in none of ours."""
    table = CONVENTIONS[name]
    assert all(attribute.meaning.endswith(".") for attribute in table.attributes.values())
    assert not set(table.deprecated) & set(table.attributes)
    assert all(key.startswith("otel_gym.") for key in OWN)


def test_metric_labels_are_span_attributes() -> None:
    """What labels a metric can be found on the span under the same name."""
    assert set(LABELS) <= set(known_attributes(["genai-0.1"]))
