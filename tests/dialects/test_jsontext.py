"""Bodies keep every digit, however long the body and wherever the number stands."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.dialects.jsontext import loads_noting

LONG = 2**64
"""The smallest integer that needs more than 64 bits: 20 digits."""


@pytest.mark.parametrize("padding", [0, 4000, 4090, 4096, 9000])
@pytest.mark.parametrize("shift", range(6))
def test_a_long_integer_keeps_its_digits(padding: int, shift: int) -> None:
    """An integer beyond 64 bits is read exactly, at every place of a short and of a long body."""
    body = json.dumps({"text": "x" * (padding + shift), "number": LONG, "more": "y" * 9}).encode()
    value, exact = loads_noting(body)
    assert value["number"] == LONG and not exact


@given(st.integers(min_value=10**18, max_value=10**40), st.integers(0, 12_000), st.integers(0, 200))
def test_no_place_hides_a_long_integer(number: int, before: int, after: int) -> None:
    """Whatever stands around it, a number of 19 digits and more comes back as it was."""
    body = json.dumps(["z" * before, number, "7" * after]).encode()
    value, _ = loads_noting(body)
    assert value[1] == number


def test_ordinary_numbers_are_exact() -> None:
    """A long body of short numbers is read and said to be exact."""
    value, exact = loads_noting(json.dumps(list(range(20_000))).encode())
    assert value == list(range(20_000)) and exact
