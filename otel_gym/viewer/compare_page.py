"""What the comparison of two rollouts shows, and its JSON twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from otel_gym.viewer.call_page import common_beginning, conversation
from otel_gym.viewer.conversation import Message
from otel_gym.viewer.index.indexer import Index
from otel_gym.viewer.index.messages import request_items
from otel_gym.viewer.rollout_page import shown_call
from otel_gym.viewer.run_page import shown_rollout

_FIGURES = (
    "calls",
    "errors",
    "truncated",
    "tokens_in",
    "tokens_out",
    "cache_share",
    "duration_ms",
    "model_ms",
    "ttft_ms",
    "reward",
)


class ComparePage:
    """Data of the comparison."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def data(self, first: str, second: str) -> dict[str, Any] | None:
        """Both rollouts call by call, and where they part; null where one of them is not there. Raises `StoreError`."""
        a, b = self._index.rollout(first), self._index.rollout(second)
        if a is None or b is None:
            return None
        calls_a, calls_b = self._index.calls(a["id"]), self._index.calls(b["id"])
        shown_a, shown_b = shown_rollout(a), shown_rollout(b)
        pairs = [
            {
                "a": shown_call(one) if one else None,
                "b": shown_call(other) if other else None,
                "same_request": bool(one and other and one["chain"] == other["chain"]),
            }
            for one, other in zip_longest(calls_a, calls_b)
        ]
        return {
            "version": f"{a['indexed_bytes']}.{b['indexed_bytes']}",
            "a": shown_a,
            "b": shown_b,
            "same_task": a["task"] == b["task"],
            "figures": [_figure(name, shown_a[name], shown_b[name]) for name in _FIGURES],
            "calls": pairs,
            "first_difference": self._first_difference(first, second, calls_a, calls_b),
        }

    def _first_difference(
        self, first: str, second: str, calls_a: list[dict[str, Any]], calls_b: list[dict[str, Any]]
    ) -> dict[str, Any] | None:
        """The first call whose request or answer is not the same in both, and the messages from where they part."""
        for one, other in zip_longest(calls_a, calls_b):
            if one is None or other is None:
                return {
                    "what": "one has no more calls",
                    "a": _side(first, one, []),
                    "b": _side(second, other, []),
                }
            raw_a = self._index.raw_record(first, one)
            raw_b = self._index.raw_record(second, other)
            asked_a, answer_a = conversation(raw_a)
            asked_b, answer_b = conversation(raw_b)
            if one["chain"] != other["chain"]:
                same = common_beginning(_items(raw_a), _items(raw_b))
                return {
                    "what": f"the request, from its message {same + 1} on",
                    "a": _side(first, one, asked_a[same : same + 5]),
                    "b": _side(second, other, asked_b[same : same + 5]),
                }
            if _comparable(answer_a) != _comparable(answer_b) or one["error"] != other["error"]:
                return {
                    "what": "the answer to the same request",
                    "a": _side(first, one, answer_a),
                    "b": _side(second, other, answer_b),
                }
        return None


def _items(raw: Mapping[str, Any]) -> list[Any]:
    request = raw.get("request")
    return request_items(str(raw.get("dialect")), request if isinstance(request, dict) else {})


def _comparable(messages: list[Message]) -> list[Any]:
    """Answers without the ids of their tool calls, which differ every time."""
    return [
        (message.role, message.finish_reason, [(p.kind, p.text, p.name) for p in message.parts])
        for message in messages
    ]


def _side(rollout_id: str, call: dict[str, Any] | None, messages: list[Message]) -> dict[str, Any]:
    return {
        "rollout_id": rollout_id,
        "number": call["number"] if call else None,
        "error": call["error"] if call else None,
        "messages": [asdict(message) for message in messages],
    }


def _figure(name: str, a: Any, b: Any) -> dict[str, Any]:
    known = a is not None and b is not None
    return {
        "name": name,
        "a": a,
        "b": b,
        "difference": b - a if known else None,
        "ratio": b / a if known and a else None,
    }
