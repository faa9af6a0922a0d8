"""Redaction: the named fields, all of them, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from otel_gym.capture.redact import REDACTED, Redactor
from otel_gym.errors import SettingsError

RECORD: dict[str, Any] = {
    "model_call_id": "a",
    "request": {
        "model": "m",
        "metadata": {"user": "u", "api_key": "k"},
        "messages": [
            {"role": "user", "content": "one"},
            {"role": "user", "content": [{"type": "text", "text": "two", "api_key": "k2"}]},
        ],
    },
    "response": {"choices": [{"message": {"content": "three"}}]},
    "response_raw": "data: three",
    "unmerged": [{"x": "three"}],
}


@pytest.mark.parametrize(
    ("path", "gone", "kept"),
    [
        ("request.messages[*].content", ["one", "two"], ["three", "u"]),
        ("$.request.messages[0].content", ["one"], ["two", "three"]),
        ("request..api_key", ["'k'", "k2"], ["one", "'u'"]),
        ("request.metadata.*", ["'u'", "'k'"], ["k2"]),
        ("request['metadata']['user']", ["'u'"], ["'k'"]),
        ("response.choices[*].message.content", ["three"], ["one", "two"]),
        ("request.messages", ["one", "two"], ["three"]),
    ],
)
def test_a_path_replaces_what_it_names(path: str, gone: list[str], kept: list[str]) -> None:
    """Values at the path are replaced wherever they stood, the rest stays, and the record says so."""
    before = repr(RECORD)
    record, matched = Redactor([path]).apply(RECORD)
    text = repr(record)
    assert matched and path in record["redacted"]
    assert [value for value in gone if value in text] == []
    assert [value for value in kept if value not in text] == []
    assert repr(RECORD) == before


def test_raw_text_of_a_redacted_body_is_not_kept() -> None:
    """Raw forms cannot be redacted by path, so they go with the first path into their body."""
    record, _ = Redactor(["response.id"]).apply(RECORD)
    assert record["response_raw"] == record["unmerged"] == REDACTED
    record, matched = Redactor(["request.nothing"]).apply(RECORD)
    assert record == RECORD and not matched
    record, _ = Redactor(["request.x"]).apply({"request": None, "request_raw": "{bad secret"})
    assert record["request_raw"] == REDACTED


def test_an_exceptions_message_may_quote_a_body() -> None:
    """With any path configured the message goes and the type stays; without paths nothing changes."""
    raw = {**RECORD, "exception": {"type": "ValueError", "message": "cannot read: secret"}}
    record, matched = Redactor(["response.nowhere"]).apply(raw)
    assert matched and record["exception"] == {"type": "ValueError", "message": REDACTED}
    assert "exception.message" in record["redacted"] and "secret" in str(raw["exception"])
    assert Redactor([]).apply(raw) == (raw, False)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "$",
        "request",
        "status_code",
        "headers.x",
        "request.[",
        "request.a[b]",
        "request..a..",
        "request.a[1",
    ],
)
def test_a_bad_path_is_refused_at_start(path: str) -> None:
    """A path that cannot be read, or names no field of a body, is a settings error that quotes it."""
    with pytest.raises(SettingsError, match="capture_redact"):
        Redactor([path])


def test_nesting_beyond_reason_hides_the_body() -> None:
    """A body too deep to search for the field is replaced as a whole: nothing leaks and nothing fails."""
    deep: Any = "secret"
    for _ in range(5000):
        deep = [deep]
    record, matched = Redactor(["request..api_key"]).apply({"request": {"x": deep}, "n": 1})
    assert matched and record["request"] == REDACTED and record["n"] == 1


def test_no_paths_change_nothing() -> None:
    """Without paths the redactor is false and harmless."""
    assert not Redactor([])
    assert Redactor([]).apply(RECORD) == (RECORD, False)
