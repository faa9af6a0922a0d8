"""Which provider answered a call: `gen_ai.provider.name`, from what a record says.

A configured name wins (it is in the record), then the engine's host, then the server's name, then traits of the answer, then the dialect. Values of the
convention are used where they apply; `vllm`, `sglang`, `llama_cpp`, `ollama` and a few hosts are custom values, which the convention allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

HOSTS: Final[tuple[tuple[str, str], ...]] = (
    (".openai.azure.com", "azure.ai.openai"),
    (".services.ai.azure.com", "azure.ai.inference"),
    (".inference.ai.azure.com", "azure.ai.inference"),
    (".openai.com", "openai"),
    (".anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("-aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    (".amazonaws.com", "aws.bedrock"),
    (".cohere.com", "cohere"),
    (".cohere.ai", "cohere"),
    (".deepseek.com", "deepseek"),
    (".groq.com", "groq"),
    (".ml.cloud.ibm.com", "ibm.watsonx.ai"),
    (".mistral.ai", "mistral_ai"),
    (".moonshot.ai", "moonshot_ai"),
    (".moonshot.cn", "moonshot_ai"),
    (".perplexity.ai", "perplexity"),
    (".x.ai", "x_ai"),
    ("integrate.api.nvidia.com", "nvidia_nim"),
    (".together.xyz", "together"),
    (".together.ai", "together"),
    (".fireworks.ai", "fireworks"),
    ("openrouter.ai", "openrouter"),
)
"""Endings of host names; the first that fits wins."""

SERVERS: Final[tuple[tuple[str, str], ...]] = (
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("llama_cpp", "llama_cpp"),
    ("llamacpp", "llama_cpp"),
    ("ollama", "ollama"),
    ("azure_openai", "azure.ai.openai"),
    ("openai", "openai"),
    ("anthropic", "anthropic"),
)
"""Parts of a model server's name (`model_ref`)."""

PORTS: Final[Mapping[int, str]] = {11434: "ollama"}
"""Ports that only one engine uses by default."""

DIALECTS: Final[Mapping[str, str]] = {"messages": "anthropic"}
"""Provider of a dialect where nothing else tells; `openai` for the others."""


def provider_name(record: Mapping[str, Any]) -> str:
    """The provider of a raw record."""
    engine = record.get("engine")
    if type(engine) is dict:
        named = engine.get("provider")
        if type(named) is str and named:
            return named[:128]
        address = engine.get("address")
        if type(address) is str and (found := _by_host(address)):
            return found
        port = engine.get("port")
        if type(port) is int and port in PORTS:
            return PORTS[port]
    reference = record.get("model_ref")
    if type(reference) is dict and type(name := reference.get("name")) is str:
        lowered = name.lower()
        for part, provider in SERVERS:
            if part in lowered:
                return provider
    response = record.get("response")
    if type(response) is dict and (found := _by_traits(response)):
        return found
    return DIALECTS.get(str(record.get("dialect")), "openai")


def _by_host(address: str) -> str | None:
    host = "." + address.lower().rstrip(".")
    for ending, provider in HOSTS:
        if host.endswith(ending) and (ending[0] in ".-" or host[-len(ending) - 1] == "."):
            return provider
    return None


def _by_traits(response: Mapping[str, Any]) -> str | None:
    """Keys that only one engine adds to its answers."""
    if "timings" in response and type(response["timings"]) is dict:
        return "llama_cpp"
    if "prompt_token_ids" in response or "kv_transfer_params" in response:
        return "vllm"
    if type(metadata := response.get("metadata")) is dict and "weight_version" in metadata:
        return "sglang"
    if response.get("system_fingerprint") == "fp_ollama":
        return "ollama"
    return None
