"""Responses and hypothesis strategies that the replay tests share."""

from __future__ import annotations

import sys
from typing import Any

from hypothesis import strategies as st

from otel_gym.replay import ReplayScope, Turn, capture_turn

SCOPE = ReplayScope("policy", "alias")

BUNDLE: dict[str, Any] = {
    "prompt_token_ids": [1, 2, 128_000],
    "generation_token_ids": [7, 8],
    "generation_log_probs": [-0.5, -0.0],
}


def message(text: str = "hello", **extra: Any) -> dict[str, Any]:
    """A message item."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": None}],
        **extra,
    }


def reasoning(text: str = "because", **extra: Any) -> dict[str, Any]:
    """A reasoning item with readable content."""
    return {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        "encrypted_content": None,
        **extra,
    }


def call(arguments: str = '{"x": 1}', **extra: Any) -> dict[str, Any]:
    """A function call item."""
    return {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_1",
        "name": "look",
        "arguments": arguments,
        **extra,
    }


def hosted(**extra: Any) -> dict[str, Any]:
    """A hosted item: it has no public text."""
    return {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {}, **extra}


def response(*items: dict[str, Any], **extra: Any) -> dict[str, Any]:
    """A Responses API answer with these items."""
    return {
        "id": "resp_1",
        "object": "response",
        "model": "alias",
        "status": "completed",
        "output": list(items),
        "usage": {"input_tokens": 3, "output_tokens": 2},
        **extra,
    }


def turn(*items: dict[str, Any], scope: ReplayScope | None = SCOPE) -> Turn:
    """A captured turn with these items."""
    return capture_turn(response(*items), scope)


def same_json(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same, with key order, and with 1 apart from 1.0 and 0.0 from -0.0."""
    return repr(left) == repr(right)


_integers = st.one_of(
    st.integers(0, 300),
    st.integers(-1, 70_000),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**80), 2**80),
)
_floats = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, sys.float_info.max, 1.0, 1e22]),
)
_any_text = st.text(st.characters(codec=None), max_size=8)
scalars = st.one_of(
    st.none(), st.booleans(), _integers, _floats, _any_text, st.just('"prompt_token_ids":[1,2]')
)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_any_text, inner, max_size=4)
    ),
    max_leaves=8,
)
_shape = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))


@st.composite
def regular(draw: st.DrawFn) -> list[Any]:
    """A regular three-dimensional list of integers, from one value range."""
    tokens, layers, top_k = draw(_shape)
    values = draw(st.sampled_from([st.integers(0, 255), st.integers(-1, 511), _integers]))
    rows = st.lists(values, min_size=top_k, max_size=top_k)
    return draw(
        st.lists(st.lists(rows, min_size=layers, max_size=layers), min_size=tokens, max_size=tokens)
    )


ids = st.one_of(
    st.lists(_integers, max_size=40),
    st.lists(st.integers(0, 9), min_size=300, max_size=320),
    # ranges, so that prompts often begin with the prompt and answer of an earlier item
    st.builds(
        lambda first, count: list(range(first, first + count)),
        st.sampled_from([0, 20, 40]),
        st.integers(0, 60),
    ),
    st.lists(st.sampled_from([1, 1.0, True]), max_size=5),
)
log_probs = st.one_of(
    st.lists(_floats, max_size=40), st.lists(st.sampled_from([0, -0.0, 1]), max_size=5)
)
experts = st.one_of(
    regular(),
    st.lists(st.lists(st.lists(_integers, max_size=3), max_size=3), max_size=3),
    st.just("nrlre1:int8:64x8x2:" + "QUJD" * 100),
    st.text(max_size=300),
    st.none(),
)


@st.composite
def items(draw: st.DrawFn) -> dict[str, Any]:
    """An output item of any kind, with a whole bundle or none, and unknown fields anywhere."""
    item: dict[str, Any] = draw(
        st.sampled_from([message(), reasoning(), call(), hosted(), message('say "hi"')])
    )
    item = {**item, **draw(st.dictionaries(_any_text, json_values, max_size=2))}
    if draw(st.booleans()):
        item["prompt_token_ids"] = draw(ids)
        item["generation_token_ids"] = draw(ids)
        item["generation_log_probs"] = draw(log_probs)
        if draw(st.booleans()):
            item["routed_experts"] = draw(experts)
    if draw(st.booleans()):
        item["metadata"] = {"prompt_token_ids": [1, 2, 3], "deeper": [{"routed_experts": [[[1]]]}]}
    return dict(sorted(item.items())) if draw(st.booleans()) else item
