"""Settings: Gym's file as it is, our own block, the standard variables, and one clear line for what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_gym.errors import SettingsError
from otel_gym.settings import ModelServerSettings, load_settings, settings_from

GYM_FILE = """
policy_base_url: http://10.0.0.1:8000/v1
observability_enabled: true
model_call_capture_dir: /captures/run1
num_workers: 4
policy_model:
  responses_api_models:
    vllm_model:
      entrypoint: app.py
      base_url: ${policy_base_url}
      api_key: secret-key
      model: org/model
      return_token_id_information: false
my_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      model_server: {type: responses_api_models, name: policy_model}
otel_gym:
  semconv: [genai-0.1]
"""


def test_a_gym_configuration_works_as_it_is(tmp_path: Path) -> None:
    """Blocks, references between keys and keys that are only Gym's are read without a change."""
    path = tmp_path / "config.yaml"
    path.write_text(GYM_FILE)
    settings = load_settings(path, environment={})
    server = settings.model_server("policy_model")
    assert settings.observability_enabled and settings.model_call_capture_dir == Path(
        "/captures/run1"
    )
    assert (server.type, server.engine_url, server.model) == (
        "vllm_model",
        "http://10.0.0.1:8000",
        "org/model",
    )
    assert settings.agents["my_agent"]["type"] == "simple_agent"
    assert settings.otel_gym.semconv == ("genai-0.1",)


def test_off_by_default() -> None:
    """Without a file nothing is captured and nothing exported."""
    settings = load_settings(environment={})
    assert not settings.observability_enabled and settings.otlp_endpoint is None
    assert settings.otel_gym.semconv == ("genai-0.1", "genai-1.41")


def test_a_key_is_never_shown() -> None:
    """The engine's key does not stand in what a settings object prints."""
    assert "secret-key" not in repr(ModelServerSettings(name="m", api_key="secret-key"))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "http://file:4318"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://env:4318"}, "http://env:4318"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://env:4318",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:4318/v1/traces",
            },
            "http://t:4318/v1/traces",
        ),
        ({"OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_TRACES_EXPORTER": "none"}, None),
    ],
)
def test_standard_variables_win_over_the_file(
    environment: dict[str, str], expected: str | None
) -> None:
    """The file's endpoint gives way to OTEL_EXPORTER_OTLP_*, and to the variables that switch export off."""
    raw = {"otel_gym": {"otlp_endpoint": "http://file:4318"}}
    assert settings_from(raw, environment=environment).otlp_endpoint == expected


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"otel_gym": {"semconv": ["genai-9"]}}, ["otel_gym.semconv", "genai-9", "genai-0.1"]),
        ({"otel_gym": {"semconv": ["openinference"]}}, ["otel_gym.semconv", "openinference"]),
        (
            {"otel_gym": {"capture_durability_timout": 3}},
            ["capture_durability_timout", "capture_durability_timeout"],
        ),
        ({"otel_gym": {"capture_durability_timeout": -1}}, ["capture_durability_timeout", "-1"]),
        ({"otel_gym": {"trace_context": "maybe"}}, ["trace_context", "maybe", "link"]),
        ({"observability_enabled": "perhaps"}, ["observability_enabled", "perhaps"]),
        ({"observability_enabled": True}, ["model_call_capture_dir", "missing"]),
        (
            {"observability_enabled": True, "model_call_capture_dir": "rel/dir"},
            ["model_call_capture_dir", "rel/dir", "absolute"],
        ),
        ({"m": {"responses_api_models": {"vllm_model": 3}}}, ["m.responses_api_models.vllm_model"]),
        (
            {"m": {"responses_api_models": {"vllm_model": {"port": 99999}}}},
            ["model_servers.m.port", "99999"],
        ),
        ({"otel_gym": {"otlp_endpoint": "localhost:4318"}}, ["localhost:4318", "http://"]),
    ],
)
def test_what_is_wrong_is_told_in_one_line(raw: dict[str, Any], words: list[str]) -> None:
    """The message names the source, the key, the value and what is wanted, in one line."""
    with pytest.raises(SettingsError) as caught:
        settings_from(raw, source="config.yaml", environment={})
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("content", "words"),
    [("a: [", "line"), ("- 1", "mapping"), ("a: ${nowhere}", "nowhere"), ("\x00", "YAML")],
)
def test_an_unreadable_file_is_told_in_one_line(tmp_path: Path, content: str, words: str) -> None:
    """Broken YAML, a wrong shape and a dangling reference are told with the file's name."""
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(SettingsError, match=words) as caught:
        load_settings(path, environment={})
    assert "config.yaml" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(SettingsError, match=r"[Nn]o such file"):
        load_settings(tmp_path / "absent.yaml", environment={})


def test_a_content_mode_that_nobody_knows_is_refused() -> None:
    """The content variable takes its four values; anything else stops the start."""
    name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    assert settings_from({}, environment={name: "span_only"}).content_capture == "SPAN_ONLY"
    assert settings_from({}, environment={}).content_capture == "NO_CONTENT"
    with pytest.raises(SettingsError, match="SPAN_AND_EVENT"):
        settings_from({}, environment={name: "everything"})


def test_one_of_several_model_servers_must_be_named() -> None:
    """With several blocks the name decides; a wrong one is told with the nearest."""
    block = {"responses_api_models": {"vllm_model": {}}}
    settings = settings_from({"policy": block, "judge": block}, environment={})
    with pytest.raises(SettingsError, match=r"judge, policy"):
        settings.model_server()
    with pytest.raises(SettingsError, match=r"did you mean 'policy'"):
        settings.model_server("polisy")
    assert settings.model_server("judge").name == "judge"
