"""Completions streams (`/v1/completions`): https://platform.openai.com/docs/api-reference/completions"""

from __future__ import annotations

from typing import Any

from otel_gym.dialects.choices import Choice, ChoicesAccumulator
from otel_gym.dialects.merge import Pieces, add_delta, settle
from otel_gym.dialects.names import DialectName


class CompletionsAccumulator(ChoicesAccumulator):
    """Every choice by index: text, log probabilities, token ids, prompt token ids, finish reason."""

    dialect: DialectName = "completions"
    object_names = ("text_completion.chunk", "text_completion")
    growing = "text"
    also_growing = frozenset({"reasoning", "reasoning_content"})

    def grow(self, slot: Choice, value: Any, alone: bool) -> None:
        """Text is appended."""
        have = slot.fields.get("text")
        add_delta(slot.fields, "text", value, self.conflict)
        if alone and have.__class__ is Pieces and value.__class__ is str:
            self.grew(slot.fields, "text", value, _text_at)

    def settle_choice(self, slot: Choice) -> dict[str, Any]:
        """The choice as it is."""
        fields = slot.fields
        fields.setdefault("finish_reason", None)
        for key in (self.growing, *self.also_growing):
            if key in fields:
                fields[key] = settle(fields[key])
        return fields


def _text_at(payload: Any) -> tuple[Any, str]:
    return payload["choices"][0], "text"
