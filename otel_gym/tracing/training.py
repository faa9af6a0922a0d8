"""How much training metadata a response carries: counts on the span, the arrays only in the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_gym.tracing.span_data import AttributeValue

_COUNTS: Final[Mapping[str, tuple[str, ...]]] = {
    "otel_gym.training.prompt_tokens": ("prompt_token_ids",),
    "otel_gym.training.generation_tokens": ("generation_token_ids", "token_ids"),
    "otel_gym.training.log_probs": ("generation_log_probs",),
    "otel_gym.training.routed_experts": ("routed_experts",),
}
"""Attribute by the fields it counts: NeMo Gym's on items and messages, vLLM's on choices and at the top."""

_STRING_FORM: Final = "nrlre1:"


def add_training(facts: dict[str, AttributeValue], response: Mapping[str, Any]) -> None:
    """Adds how many ids, log probabilities and rows of experts the response holds; nothing where it holds none."""
    for carrier in _carriers(response):
        for name, fields in _COUNTS.items():
            for field in fields:
                found = _length(carrier.get(field))
                if found is not None:
                    before = facts.get(name, 0)
                    facts[name] = (before if isinstance(before, int) else 0) + found


def _carriers(response: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The objects of a response that may carry metadata: itself, its items, its choices and their messages."""
    yield response
    for key in ("output", "choices"):
        entries = response.get(key)
        if type(entries) is not list:
            continue
        for entry in entries:
            if type(entry) is dict:
                yield entry
                if type(message := entry.get("message")) is dict:
                    yield message


def _length(value: object) -> int | None:
    """Entries of an array; of `nrlre1:<dtype>:<SxLxK>:<base64>` its S; null for anything else."""
    if type(value) is list:
        return len(value)
    if type(value) is str and value.startswith(_STRING_FORM):
        shape = value[len(_STRING_FORM) :].split(":", 2)[1:2]
        rows = shape[0].split("x")[0] if shape else ""
        return int(rows) if rows.isascii() and rows.isdigit() and len(rows) < 10 else None
    return None
