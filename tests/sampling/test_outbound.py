"""A request's body is read and written again without losing anything."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gym.sampling.outbound import (
    Ambiguous,
    UnreadableBody,
    lay_pins,
    read_object,
    with_defaults,
)
from otel_gym.sampling.profile import profile_of

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=20)
)
BODIES = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    max_size=4,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(BODIES, st.booleans())
def test_writing_again_loses_nothing(value: dict[str, Any], escaped: bool) -> None:
    """Any JSON object, infinities, lone surrogates and integers of any length included, is the same after a pin went in."""
    sent = json.dumps(value, ensure_ascii=True if escaped else not _is_text(value)).encode()
    read = read_object(sent)
    assert read.value == value
    again = read.written({**read.value, "pin": 1})
    assert json.loads(again) == {**value, "pin": 1}


def _is_text(value: Any) -> bool:
    """Whether UTF-8 can hold every text in the value."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def test_not_a_number_survives() -> None:
    """What some engines take beyond the standard goes out as it came."""
    read = read_object(b'{"a": NaN, "b": -Infinity}')
    assert read.written({**read.value, "pin": 1}) == b'{"a":NaN,"b":-Infinity,"pin":1}'


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(b"", ""), (b"7", ""), (b'"x"', ""), (b"null", ""), (b"[]", ""), (b"{", ""), (b"\xff", ""), (b"{}", "gzip"), (gzip.compress(b'{"a": "some text"}')[:-12], "gzip"), (b"{}", "rot13")],
)  # fmt: skip
def test_what_cannot_be_read(body: bytes, encoding: str) -> None:
    """Bytes that are no JSON object, or not in their encoding, are one kind of error."""
    with pytest.raises(UnreadableBody):
        read_object(body, encoding)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[1]", "an array, not an object"),
        (b"null", "null, not an object"),
        (b"1", "a number, not"),
    ],
)
def test_what_is_no_object_is_named_as_json_names_it(body: bytes, said: str) -> None:
    """The message is for whoever wrote the request, in whatever language."""
    with pytest.raises(UnreadableBody, match=said):
        read_object(body)


@pytest.mark.parametrize(
    ("body", "repeats"),
    [
        (b'{"temperature":2,"temperature":1}', True),
        (b'{"temperatur\\u0065":2,"temperature":1}', True),
        (b'{"max\\u005ftokens":2,"max_tokens":1}', True),
        (b'{"temperature":1,"tools":[{"parameters":{"temperature":{}}}]}', True),
        (b'{"temperature":1,"x":"a \\"temperature\\" and \\u003cb\\u003e \\u00e9"}', False),
        (b'{"temperature":1,"model":"m","model":"n"}', False),
    ],
)
def test_a_body_that_readers_may_take_differently_is_noted(body: bytes, repeats: bool) -> None:
    """A sampling parameter that stands in a body twice, in plain letters or in escapes, makes it ambiguous."""
    assert isinstance(read_object(body).value, Ambiguous) is repeats


def test_an_ambiguous_body_is_written_anew_only_under_pins() -> None:
    """With the pinned value already last, the body is still another one; without pins it is the very same."""
    read = read_object(b'{"temperature":2,"temperature":1}')
    for pins, changes in (({"temperature": 1.0}, True), ({}, False)):
        sent, account = lay_pins(
            profile_of(pins), "chat", read.value, caller_dialect="chat", caller=read.value
        )
        assert (sent is not read.value) is changes
        assert sent == {"temperature": 1}
        assert (account.requested, account.overridden) == ({"temperature": 1}, [])


def test_defaults_fill_in_only_what_is_missing() -> None:
    """The caller's own value wins, a null too; with nothing missing the very same object comes back."""
    caller = {"a": None, "b": 1}
    assert with_defaults(caller, {"a": 5, "c": 6}) == {"a": None, "b": 1, "c": 6}
    assert with_defaults(caller, {"a": 5, "b": 6}) is caller
