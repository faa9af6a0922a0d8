"""Token counts of a response: one rule table for all dialects.

| count | Responses | Chat, Completions | Messages |
|---|---|---|---|
| input | `input_tokens` | `prompt_tokens` | `input_tokens` + cache read + cache creation |
| output | `output_tokens` | `completion_tokens` | `output_tokens` |
| total | `total_tokens`, else input + output | the same | the same |
| cached | `input_tokens_details.cached_tokens` | `prompt_tokens_details.cached_tokens` | `cache_read_input_tokens` |
| cache write | `input_tokens_details.cache_write_tokens` | the same of `prompt_tokens_details` | `cache_creation_input_tokens` |
| reasoning | `output_tokens_details.reasoning_tokens` | the same of `completion_tokens_details` | `output_tokens_details.thinking_tokens` |
| audio | `audio_tokens` of the details | the same | |

A count is an integer that is not negative; anything else is absent, and an absent count is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from otel_gym.dialects.names import DialectName


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Token counts; null where the provider did not say."""

    input: int | None = None
    """Input tokens including cached ones."""
    output: int | None = None
    total: int | None = None
    """The provider's total, else input + output where both are known."""
    cached: int | None = None
    """Input tokens read from a cache; part of `input`."""
    cache_write: int | None = None
    """Input tokens written to a cache; part of `input`."""
    reasoning: int | None = None
    """Output tokens spent on reasoning; part of `output`."""
    audio_input: int | None = None
    audio_output: int | None = None
    provider_total: int | None = None
    """`total_tokens` as given, null where there was none."""
    disagrees: tuple[str, ...] = ()
    """Which figures of the provider contradict each other: `total`, `cached`, `cache_write`, `reasoning`."""


NOTHING = TokenUsage()


def read_usage(dialect: DialectName | str, response: Mapping[str, Any] | None) -> TokenUsage:
    """The counts in a response's `usage`, and nowhere else."""
    usage = _usage(response)
    if usage is None:
        return NOTHING
    inputs = _details(usage, "input_tokens_details", "prompt_tokens_details")
    outputs = _details(usage, "output_tokens_details", "completion_tokens_details")
    input_tokens = _first(usage, "input_tokens", "prompt_tokens")
    output = _first(usage, "output_tokens", "completion_tokens")
    read = _count(usage, "cache_read_input_tokens")
    created = _count(usage, "cache_creation_input_tokens")
    cached = _first_of(inputs, "cached_tokens", "cached_input_tokens")
    separate = (read is not None or created is not None) and (
        dialect == "messages" or ("prompt_tokens" not in usage and cached is None)
    )
    if separate:
        beside = (read or 0) + (created or 0)
        if input_tokens is not None or beside:
            input_tokens = (input_tokens or 0) + beside
    if cached is None:
        cached = read if read is not None else _first(usage, "cached_input_tokens")
    cache_write = created
    if cache_write is None:
        cache_write = _first_of(inputs, "cache_write_tokens", "cache_creation_tokens")
    reasoning = _first_of(outputs, "reasoning_tokens", "thinking_tokens")
    if reasoning is None:
        reasoning = _first(usage, "reasoning_output_tokens")
    provider_total = _count(usage, "total_tokens")
    total = provider_total
    if total is None and input_tokens is not None and output is not None:
        total = input_tokens + output
    return TokenUsage(
        input=input_tokens,
        output=output,
        total=total,
        cached=cached,
        cache_write=cache_write,
        reasoning=reasoning,
        audio_input=_first_of(inputs, "audio_tokens"),
        audio_output=_first_of(outputs, "audio_tokens"),
        provider_total=provider_total,
        disagrees=_disagreements(
            input_tokens, output, provider_total, cached, cache_write, reasoning
        ),
    )


def _disagreements(
    input_tokens: int | None,
    output: int | None,
    total: int | None,
    cached: int | None,
    cache_write: int | None,
    reasoning: int | None,
) -> tuple[str, ...]:
    found = []
    if None not in (total, input_tokens, output) and total != input_tokens + output:  # type: ignore[operator]
        found.append("total")
    if input_tokens is not None:
        if cached is not None and cached > input_tokens:
            found.append("cached")
        if cache_write is not None and cache_write > input_tokens:
            found.append("cache_write")
    if output is not None and reasoning is not None and reasoning > output:
        found.append("reasoning")
    return tuple(found)


def _usage(response: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if response is None:
        return None
    usage = response.get("usage")
    return usage if isinstance(usage, Mapping) else None


def _details(usage: Mapping[str, Any], *names: str) -> list[Mapping[str, Any]]:
    return [usage[name] for name in names if isinstance(usage.get(name), Mapping)]


def _count(mapping: Mapping[str, Any], name: str) -> int | None:
    value = mapping.get(name)
    return value if type(value) is int and value >= 0 else None


def _first(mapping: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = _count(mapping, name)
        if value is not None:
            return value
    return None


def _first_of(mappings: list[Mapping[str, Any]], *names: str) -> int | None:
    for mapping in mappings:
        value = _first(mapping, *names)
        if value is not None:
            return value
    return None
