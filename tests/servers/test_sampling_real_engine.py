"""Sampling pins against the embedded real engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from otel_gym.demo.engine import embedded_engine
from otel_gym.servers.engine import EngineForwarder
from otel_gym.settings import ModelServerSettings
from tests.engines.serving import Served

CALLS = 20
PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": 8,
    },
    "/v1/responses": {"input": "Tell me a story.", "max_output_tokens": 8},
    "/v1/messages": {
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": 8,
    },
    "/v1/completions": {"prompt": "Once upon a time", "max_tokens": 8},
}


@pytest.fixture(scope="module")
def engine_url() -> Iterator[str]:
    with embedded_engine(slots=1, context_tokens=512) as url:
        yield url


def text_of(path: str, answer: dict[str, Any]) -> str:
    match path:
        case "/v1/chat/completions":
            found = answer["choices"][0]["message"]["content"]
        case "/v1/completions":
            found = answer["choices"][0]["text"]
        case "/v1/messages":
            found = answer["content"][0]["text"]
        case _:
            found = answer["output"][0]["content"][0]["text"]
    assert isinstance(found, str) and found
    return found


def texts(url: str, path: str, calls: int) -> set[str]:
    """The different texts of `calls` calls whose caller wants them wild, each with a seed of its own."""
    found = set()
    with httpx.Client(base_url=url, timeout=120) as client:
        for seed in range(calls):
            body = {**PATHS[path], "model": "m", "temperature": 1.5, "seed": seed}
            answer = client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            found.add(text_of(path, answer.json()))
    return found


@pytest.mark.slow
def test_a_pinned_temperature_rules(engine_url: str) -> None:
    """With temperature 0 pinned, 20 calls at the callers' own 1.5 give one and the same text; without the pin they don't."""
    path = "/v1/chat/completions"
    with ExitStack() as stack:
        pinned = _serve(stack, engine_url, sampling_overrides={"temperature": 0})
        free = _serve(stack, engine_url)
        assert len(texts(pinned, path, CALLS)) == 1
        assert len(texts(free, path, CALLS)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(set(PATHS) - {"/v1/chat/completions"}))
def test_the_pin_rules_on_every_path(engine_url: str, path: str) -> None:
    """The other dialects obey the same pin at the real engine."""
    with ExitStack() as stack:
        pinned = _serve(stack, engine_url, sampling_overrides={"temperature": 0})
        assert len(texts(pinned, path, 4)) == 1


@pytest.mark.slow
def test_chat_through_completions_is_the_same_chat(engine_url: str) -> None:
    """Rendered by us with the engine's own template and sent to /v1/completions, a chat gets the text that the engine's chat route gives."""
    path = "/v1/chat/completions"
    pins = {"temperature": 0}
    with ExitStack() as stack:
        direct = _serve(stack, engine_url, sampling_overrides=pins)
        rendered = _serve(stack, engine_url, sampling_overrides=pins, use_completions_api=True)
        assert texts(direct, path, 1) == texts(rendered, path, 1)


def _serve(stack: ExitStack, engine_url: str, **more: Any) -> str:
    server = ModelServerSettings(base_url=engine_url, **more)
    return stack.enter_context(Served(EngineForwarder(server))).url
