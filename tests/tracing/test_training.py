"""Counts of training metadata on a span."""

from __future__ import annotations

from typing import Any

import pytest

from otel_gym.tracing.training import add_training

BUNDLE = {
    "prompt_token_ids": [1, 2, 3],
    "generation_token_ids": [4, 5],
    "generation_log_probs": [-0.5, -1.0],
    "routed_experts": [[[0, 1]], [[2, 3]]],
}
COUNTS = {
    "otel_gym.training.prompt_tokens": 3,
    "otel_gym.training.generation_tokens": 2,
    "otel_gym.training.log_probs": 2,
    "otel_gym.training.routed_experts": 2,
}


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"output": [{"type": "reasoning"}, {"type": "message", **BUNDLE}]}, COUNTS),
        ({"choices": [{"message": {"content": "x", **BUNDLE}}]}, COUNTS),
        (
            {"prompt_token_ids": [1, 2], "choices": [{"token_ids": [7]}, {"token_ids": [8, 9]}]},
            {"otel_gym.training.prompt_tokens": 2, "otel_gym.training.generation_tokens": 3},
        ),
        (
            {
                "output": [
                    {"routed_experts": "nrlre1:int16:511x64x8:AAAA"},
                    {"routed_experts": "nrlre1:int16:x"},
                ]
            },
            {"otel_gym.training.routed_experts": 511},
        ),
        ({"output": [{"generation_token_ids": []}]}, {"otel_gym.training.generation_tokens": 0}),
        ({"output": ["x", None, {"prompt_token_ids": "no list"}], "choices": 3}, {}),
        ({"output": [{"type": "message"}]}, {}),
    ],
)
def test_a_span_has_the_counts_and_never_the_arrays(
    response: dict[str, Any], expected: dict[str, int]
) -> None:
    """Items, messages, choices and the response itself are counted; what is no array adds nothing."""
    facts: dict[str, Any] = {}
    add_training(facts, response)
    assert facts == expected
