"""What a turn knows of its response beside the items."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from otel_gym.replay.json_values import JsonValue


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """What a turn knows of its response beside the items; each is null where the response had none.

    `finish_reason` is the reason of an incomplete response; a completed one has null.
    """

    response_id: str | None = None
    model: str | None = None
    status: str | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None

    @classmethod
    def stored(cls, value: dict[str, Any]) -> ResponseFacts:
        """As they were written; TypeError or ValueError for anything else."""
        facts = cls(**value)
        texts = (facts.response_id, facts.model, facts.status, facts.finish_reason)
        if not all(text is None or isinstance(text, str) for text in texts):
            raise ValueError("a fact of the response is no text")
        if not isinstance(facts.usage, dict | None):
            raise ValueError("the usage is no object")
        return facts

    @classmethod
    def of(cls, response: dict[str, Any]) -> ResponseFacts:
        """The facts of a Responses API answer; copies, so that a change of the answer changes no turn."""
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        usage = response.get("usage")
        return cls(
            response_id=_text(response.get("id")),
            model=_text(response.get("model")),
            status=_text(response.get("status")),
            finish_reason=_text(reason),
            usage=copy.deepcopy(usage) if isinstance(usage, dict) else None,
        )


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None
