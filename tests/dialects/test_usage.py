"""One rule table for token counts: integers only, null where absent, contradictions flagged."""

from __future__ import annotations

from typing import Any

import pytest

from otel_gym.dialects import TokenUsage, read_usage

CHAT = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3, "audio_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 1, "audio_tokens": 6},
}


@pytest.mark.parametrize(
    ("dialect", "usage", "expected"),
    [
        pytest.param(
            "chat",
            CHAT,
            TokenUsage(10, 5, 15, 4, 3, 1, 2, 6, 15),
            id="chat",
        ),
        pytest.param(
            "responses",
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "total_tokens": 15,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 2},
            },
            TokenUsage(10, 5, 15, cached=0, reasoning=2, provider_total=15),
            id="responses",
        ),
        pytest.param(
            "messages",
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 7,
                "output_tokens_details": {"thinking_tokens": 3},
            },
            TokenUsage(117, 5, 122, cached=100, cache_write=7, reasoning=3),
            id="messages: input includes the cache",
        ),
        pytest.param(
            "messages",
            {"input_tokens": 10, "cache_read_input_tokens": None},
            TokenUsage(10),
            id="messages: a null cache is unknown",
        ),
        pytest.param(
            "messages",
            {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
            TokenUsage(cached=0, cache_write=0),
            id="messages: zero cache alone is no input",
        ),
        pytest.param(
            "chat",
            {"prompt_tokens": 22, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 0},
            TokenUsage(22, cached=8, cache_write=0),
            id="chat: prompt tokens already include the cache",
        ),
        pytest.param("chat", {}, TokenUsage(), id="nothing"),
        pytest.param(
            "chat",
            {"prompt_tokens": 1.0, "completion_tokens": True, "total_tokens": -1},
            TokenUsage(),
            id="only integers that are not negative",
        ),
        pytest.param(
            "chat",
            {"prompt_tokens": 0, "completion_tokens": 0},
            TokenUsage(0, 0, 0),
            id="zero is a count",
        ),
        pytest.param(
            "chat",
            {"prompt_tokens": 3, "completion_tokens": None, "prompt_tokens_details": None},
            TokenUsage(3),
            id="no sum of a part",
        ),
        pytest.param(
            "chat",
            {**CHAT, "total_tokens": 99, "prompt_tokens": 1},
            TokenUsage(1, 5, 99, 4, 3, 1, 2, 6, 99, ("total", "cached", "cache_write")),
            id="contradictions",
        ),
        pytest.param(
            "chat",
            {"completion_tokens": 1, "reasoning_output_tokens": 2},
            TokenUsage(output=1, reasoning=2, disagrees=("reasoning",)),
            id="reasoning above output",
        ),
    ],
)
def test_counts_follow_the_table(dialect: str, usage: dict[str, Any], expected: TokenUsage) -> None:
    """Every rule of the table."""
    assert read_usage(dialect, {"usage": usage}) == expected


@pytest.mark.parametrize("response", [None, {}, {"usage": None}, {"usage": 7}, {"usage": []}])
def test_no_usage_is_no_count(response: Any) -> None:
    """Nothing is invented."""
    assert read_usage("chat", response) == TokenUsage()


def test_usage_in_other_places_is_not_taken_for_it() -> None:
    """Groq repeats counts in `x_groq.usage`: that stays in the response, but what `usage` does not say is null."""
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    assert read_usage("chat", {"x_groq": {"usage": usage}}) == TokenUsage()
    assert (
        read_usage("chat", {"usage": {"prompt_tokens": 9}, "x_groq": {"usage": usage}}).input == 9
    )
