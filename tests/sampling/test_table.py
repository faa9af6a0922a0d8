"""Dialect x parameter x (absent, null, other value, same value): what is sent, and what the record says of it."""

from __future__ import annotations

from typing import Any

import pytest

from otel_gym.dialects.names import DIALECTS, DialectName
from otel_gym.sampling.outbound import lay_pins
from otel_gym.sampling.parameters import PARAMETERS, Parameter
from otel_gym.sampling.profile import profile_of

VALUES: dict[str, tuple[Any, Any]] = {
    "number": (0.5, 1),
    "integer": (1, 2),
    "boolean": (True, False),
    "strings": (["a"], "b"),
    "integers": ([1], [2, 3]),
    "object": ({"1": -1}, {"2": 5}),
}
"""By kind: the pin, and another value; both are inside every range of the table."""

CASES = [
    pytest.param(dialect, parameter, state, id=f"{dialect}-{parameter.name}-{state}")
    for dialect in DIALECTS
    for parameter in PARAMETERS.values()
    for state in ("absent", "null", "other", "same")
]


@pytest.mark.parametrize(("dialect", "parameter", "state"), CASES)
def test_table(dialect: DialectName, parameter: Parameter, state: str) -> None:
    """The pin stands under the path's name whatever the caller sent; only another value counts as overridden; the same value changes nothing."""
    pin, other = VALUES[parameter.kind]
    profile = profile_of({parameter.name: pin})
    names = parameter.names.get(dialect, ())
    # The name a caller uses here; `max_tokens` is configured under a name that chat knows as well.
    name = names[0] if names else parameter.name
    sent: dict[str, Any] = {"model": "m", "input": "x"}
    if state != "absent":
        sent[name] = {"null": None, "other": other, "same": pin}[state]
    body, account = lay_pins(profile, dialect, sent, caller_dialect=dialect, caller=sent)
    if not names:
        assert body is sent
        assert account.pinned == {}
        return
    key = parameter.name if state == "absent" and parameter.name in names else name
    assert body == {**sent, key: pin}
    assert (body is sent) == (state == "same")
    assert account.pinned == {key: pin}
    assert account.effective == {key: pin}
    assert account.overridden == ([name] if state == "other" else [])
    assert account.requested == ({} if state == "absent" else {name: sent[name]})


@pytest.mark.parametrize(
    ("dialect", "sent", "expected"),
    [
        ("chat", {"max_tokens": 9}, {"max_tokens": 4}),
        ("chat", {"max_completion_tokens": 9}, {"max_completion_tokens": 4}),
        (
            "chat",
            {"max_tokens": 9, "max_completion_tokens": 8},
            {"max_tokens": 4, "max_completion_tokens": 4},
        ),
        ("chat", {"n_predict": 9}, {"max_tokens": 4, "n_predict": 4}),
        ("responses", {"max_tokens": 9}, {"max_tokens": 9, "max_output_tokens": 4}),
        ("responses", {}, {"max_output_tokens": 4}),
        ("messages", {"max_tokens": 9}, {"max_tokens": 4}),
        ("completions", {"n_predict": 9, "max_tokens": 1}, {"n_predict": 4, "max_tokens": 4}),
    ],
)
def test_names_of_the_token_limit(
    dialect: DialectName, sent: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The limit is replaced under every name that the path or some engine obeys, and is always sent under one that the path obeys."""
    assert profile_of({"max_tokens": 4}).lay_over(dialect, sent).body == expected


def test_chat_through_completions_is_accounted_in_chat_names() -> None:
    """Where chat is served through completions, the record speaks of the caller's own names."""
    chat = {"messages": [], "max_completion_tokens": 9, "temperature": 0.1}
    completion = {"prompt": "x", "max_tokens": 9, "temperature": 0.1}
    body, account = lay_pins(
        profile_of({"max_tokens": 4, "temperature": 1.0}),
        "completions",
        completion,
        caller_dialect="chat",
        caller=chat,
    )
    assert body == {"prompt": "x", "max_tokens": 4, "temperature": 1.0}
    assert account.effective == {"max_completion_tokens": 4, "temperature": 1.0}
    assert account.pinned == {"max_completion_tokens": 4, "temperature": 1.0}
    assert sorted(account.overridden) == ["max_completion_tokens", "temperature"]
