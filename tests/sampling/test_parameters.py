"""The parameter table: names, types and ranges, and what configuration it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest

from otel_gym.dialects.names import DIALECTS
from otel_gym.errors import SettingsError, UsageProblem
from otel_gym.sampling.pairs import pairs
from otel_gym.sampling.parameters import PARAMETERS, SPELLINGS, by_parameter, sampling_of
from otel_gym.sampling.profile import profile_of, same_value


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("temperature", -1, "a number from 0 to 2"),
        ("temperature", 2.5, "a number from 0 to 2"),
        ("temperature", True, "a number"),
        ("temperature", "hot", "a number"),
        ("temperature", math.nan, "a number"),
        ("top_p", 0, "a number above 0, up to 1"),
        ("top_k", -2, "an integer of at least -1"),
        ("top_k", 5.0, "an integer"),
        ("max_output_tokens", 0, "an integer of at least 1"),
        ("stop", [1], "a text or a list of texts"),
        ("stop_token_ids", ["a"], "a list of integers"),
        ("ignore_eos", 1, "true or false"),
        ("logit_bias", [], "a mapping"),
        ("repetition_penalty", 0, "a number above 0"),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: Any, rule: str) -> None:
    """The error names the key, the value and the rule that it breaks."""
    with pytest.raises(SettingsError) as caught:
        profile_of({name: value}, where="policy.sampling_overrides")
    assert str(caught.value).startswith(
        f"policy.sampling_overrides.{name}: {value!r}: must be {rule}"
    )


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    """A misspelt name is refused with the known one that it was meant to be."""
    with pytest.raises(SettingsError, match=r"temprature: is no known .*'temperature'"):
        profile_of({"temprature": 1.0})


def test_an_unknown_name_goes_through_when_allowed() -> None:
    """With `sampling_allow_unknown` a name that the table lacks is pinned as it is on every path."""
    profile = profile_of({"my_knob": {"a": 1}}, allow_unknown=True)
    for dialect in DIALECTS:
        assert profile.lay_over(dialect, {"my_knob": 0}).body == {"my_knob": {"a": 1}}


def test_one_parameter_under_two_names_is_refused() -> None:
    """Two spellings of one parameter would be two truths."""
    with pytest.raises(SettingsError, match="max_tokens pins the same parameter"):
        profile_of({"max_tokens": 5, "max_output_tokens": 6})


def test_null_pins_nothing() -> None:
    """A null in the configuration is an absent pin."""
    assert not profile_of({"temperature": None})
    assert not profile_of(None)
    assert profile_of(None).describe() == "pins nothing"


def test_every_spelling_has_one_parameter() -> None:
    """No name means two parameters, on any path."""
    for name, parameter in SPELLINGS.items():
        owners = {
            other.name
            for other in PARAMETERS.values()
            if name in {*other.shadows, *(n for names in other.names.values() for n in names)}
        }
        assert owners <= {parameter.name}


def test_reading_a_body() -> None:
    """The sampling parameters of a body keep its names; reports use one name for each."""
    body = {"model": "m", "max_output_tokens": 5, "temperature": None, "top_k": 3}
    sampling = sampling_of("responses", body)
    assert sampling == {"max_output_tokens": 5, "temperature": None, "top_k": 3}
    assert by_parameter("responses", sampling) == {"max_tokens": 5, "top_k": 3}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("a", ["a"], True),
        ("a", ["a", "b"], False),
        ([1, 2], [1, 2], True),
        (None, 0, False),
    ],
)
def test_same_value(one: Any, other: Any, same: bool) -> None:
    """Numbers are compared as numbers, true is no number, one stop text equals a list of it."""
    assert same_value(one, other) is same
    assert same_value(other, one) is same


def test_pairs_of_a_command_line() -> None:
    """A value is JSON where it is JSON, else text; a pair without a name or sign is refused."""
    typed = ["temperature=1.0", "top_k=-1", 'stop=["a=b"]', "stop_text=x=y", "ignore_eos=true"]
    assert pairs("--sampling", typed) == {
        "temperature": 1.0,
        "top_k": -1,
        "stop": ["a=b"],
        "stop_text": "x=y",
        "ignore_eos": True,
    }
    for bad in ("temperature", "=1"):
        with pytest.raises(UsageProblem, match="NAME=VALUE"):
            pairs("--sampling", [bad])
