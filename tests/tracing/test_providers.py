"""The rules for `gen_ai.provider.name`."""

from __future__ import annotations

from typing import Any

import pytest

from otel_gym.tracing.providers import provider_name


@pytest.mark.parametrize(
    ("record", "provider"),
    [
        ({"engine": {"provider": "my_engine", "address": "api.openai.com"}}, "my_engine"),
        ({"engine": {"address": "api.openai.com", "port": 443}}, "openai"),
        ({"engine": {"address": "me.openai.azure.com"}}, "azure.ai.openai"),
        ({"engine": {"address": "api.anthropic.com"}, "dialect": "chat"}, "anthropic"),
        ({"engine": {"address": "bedrock-runtime.us-east-1.amazonaws.com"}}, "aws.bedrock"),
        ({"engine": {"address": "generativelanguage.googleapis.com"}}, "gcp.gemini"),
        ({"engine": {"address": "us-central1-aiplatform.googleapis.com"}}, "gcp.vertex_ai"),
        ({"engine": {"address": "openrouter.ai"}}, "openrouter"),
        ({"engine": {"address": "notopenrouter.ai"}}, "openai"),
        ({"engine": {"address": "127.0.0.1", "port": 11434}}, "ollama"),
        ({"model_ref": {"type": "responses_api_models", "name": "vllm_model"}}, "vllm"),
        ({"model_ref": {"name": "my-SGLang"}}, "sglang"),
        ({"model_ref": {"name": "policy"}, "response": {"timings": {}}}, "llama_cpp"),
        ({"response": {"prompt_token_ids": []}}, "vllm"),
        ({"response": {"system_fingerprint": "fp_ollama"}}, "ollama"),
        ({"dialect": "messages"}, "anthropic"),
        ({"dialect": "responses"}, "openai"),
        ({}, "openai"),
        ({"engine": "x", "model_ref": 3, "response": []}, "openai"),
    ],
)
def test_the_first_rule_that_fits_wins(record: dict[str, Any], provider: str) -> None:
    """Configured name, host, port, server name, traits of the answer, dialect, in that order."""
    assert provider_name(record) == provider
