"""The benchmark's turns: the published shape, in three forms of input."""

from __future__ import annotations

import base64
from typing import Any, Final

import numpy as np
import orjson

from otel_gym.replay.scope import ReplayScope

SCOPE: Final = ReplayScope("policy", "benchmark")
FORMS: Final = ("lists", "bytes", "string")
"""Input as nested lists, as response bytes, and as lists with `routed_experts` in its string form."""

_EXPERTS: Final = 256
_VOCABULARY: Final = 128_000
_TEXT_BYTES: Final = 9_000


def responses(
    turns: int, *, prompt_tokens: int, generated_tokens: int, layers: int, top_k: int
) -> list[dict[str, Any]]:
    """One response a turn, each with one message item; every nested list is its own object."""
    random = np.random.default_rng(20261130)
    words = [f"w{number:03d}" for number in range(1000)]
    made = []
    for turn in range(turns):
        text = " ".join(random.choice(words, _TEXT_BYTES // 5))
        experts = random.integers(0, _EXPERTS, (generated_tokens, layers, top_k))
        item = {
            "id": f"msg_{turn}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
            "prompt_token_ids": random.integers(0, _VOCABULARY, prompt_tokens).tolist(),
            "generation_token_ids": random.integers(0, _VOCABULARY, generated_tokens).tolist(),
            "generation_log_probs": (-random.exponential(1.0, generated_tokens)).tolist(),
            "routed_experts": experts.tolist(),
        }
        made.append(
            {
                "id": f"resp_{turn}",
                "object": "response",
                "model": SCOPE.model_alias,
                "status": "completed",
                "output": [item],
                "usage": {"input_tokens": prompt_tokens, "output_tokens": generated_tokens},
            }
        )
    return made


def in_form(form: str, made: list[dict[str, Any]]) -> list[Any]:
    """The responses as `lists`, `bytes` or `string` input."""
    if form == "lists":
        return list(made)
    if form == "bytes":
        return [orjson.dumps(response) for response in made]
    return [_with_string(response) for response in made]


def _with_string(response: dict[str, Any]) -> dict[str, Any]:
    item = dict(response["output"][0])
    experts = np.array(item["routed_experts"], dtype="<i2")
    shape = "x".join(map(str, experts.shape))
    payload = base64.b64encode(experts.tobytes()).decode()
    item["routed_experts"] = f"nrlre1:int16:{shape}:{payload}"
    return response | {"output": [item]}
