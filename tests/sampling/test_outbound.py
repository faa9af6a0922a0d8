"""A request's body is read and written again without losing anything."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gym.sampling.outbound import UnreadableBody, read_object, with_defaults

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
    [(b"", ""), (b"null", ""), (b"[]", ""), (b"{", ""), (b"\xff", ""), (b"{}", "gzip"), (gzip.compress(b'{"a": "some text"}')[:-12], "gzip"), (b"{}", "rot13")],
)  # fmt: skip
def test_what_cannot_be_read(body: bytes, encoding: str) -> None:
    """Bytes that are no JSON object, or not in their encoding, are one kind of error."""
    with pytest.raises(UnreadableBody):
        read_object(body, encoding)


def test_defaults_fill_in_only_what_is_missing() -> None:
    """The caller's own value wins, a null too; with nothing missing the very same object comes back."""
    caller = {"a": None, "b": 1}
    assert with_defaults(caller, {"a": 5, "c": 6}) == {"a": None, "b": 1, "c": 6}
    assert with_defaults(caller, {"a": 5, "b": 6}) is caller
