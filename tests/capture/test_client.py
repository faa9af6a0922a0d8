"""What is kept of request headers, and what never is."""

from __future__ import annotations

import pytest

from otel_gym.capture.client import HeaderPicker, retry_count_of, session_of
from otel_gym.capture.resend import WINDOW_NS, ResendTracker, digest_of
from otel_gym.errors import SettingsError


def headers(*pairs: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in pairs]


@pytest.mark.parametrize(
    "name", ["x-session-id", "x-claude-code-session-id", "session-id", "thread-id"]
)
def test_each_harness_says_its_session_in_its_own_header(name: str) -> None:
    """Any of the known session headers fills the session."""
    assert (
        session_of(HeaderPicker().pick(headers((name, "s-1"), ("authorization", "Bearer x"))))
        == "s-1"
    )


def test_two_different_sessions_are_no_session() -> None:
    """Two distinct values of one header are not guessed between; the same twice is one, an empty one is none."""
    picker = HeaderPicker()
    assert session_of(picker.pick(headers(("x-session-id", "a"), ("x-session-id", "b")))) is None
    assert (
        session_of(
            picker.pick(headers(("x-session-id", "a"), ("x-session-id", "a"), ("x-session-id", "")))
        )
        == "a"
    )


def test_sub_agents_and_auxiliary_calls_are_told_apart() -> None:
    """Agent, parent and request kind come from the headers of the products that send them."""
    picker = HeaderPicker(span_baggage=["team"])
    found = picker.client(
        picker.pick(
            headers(
                ("x-claude-code-agent-id", "sub-1"),
                ("x-codex-parent-thread-id", "t-0"),
                ("x-codex-turn-metadata", '{"request_kind": "compaction", "secret": 1}'),
                ("baggage", "team=red%20ones;p=1, other=2"),
            )
        )
    )
    assert found == {
        "agent_id": "sub-1",
        "parent_id": "t-0",
        "request_kind": "compaction",
        "headers": {},
        "baggage": {"team": "red ones"},
    }
    assert (
        picker.client(
            picker.pick(headers(("x-codex-turn-metadata", "not json"), ("user-agent", "x")))
        )
        is None
    )


def test_only_listed_headers_are_kept_and_secrets_cannot_be_listed() -> None:
    """An allow-listed header is kept, cut to its bound; one that carries secrets is refused at the start."""
    picker = HeaderPicker(span_headers=["X-Team"])
    found = picker.client(
        picker.pick(headers(("x-team", "r" * 5000), ("x-api-key", "k"), ("cookie", "c")))
    )
    assert found is not None and found["headers"] == {"x-team": "r" * 1024}
    for secret in ("Authorization", "x-api-key", "cookie", "chatgpt-account-id"):
        with pytest.raises(SettingsError, match="secrets"):
            HeaderPicker(span_headers=[secret])


@pytest.mark.parametrize(("value", "expected"), [("2", 2), ("0", 0), ("x", 0), ("-1", 0), ("²", 0)])
def test_a_retry_count_is_a_plain_number(value: str, expected: int) -> None:
    """The SDKs' retry header counts only as ASCII digits."""
    assert (
        retry_count_of(HeaderPicker().pick(headers(("x-stainless-retry-count", value)))) == expected
    )


def test_the_same_bytes_soon_after_a_failure_are_a_resend() -> None:
    """Same rollout, dialect and bytes within the window repeat the failed call; anything else is a call of its own."""
    tracker = ResendTracker()
    digest = digest_of([b"ab", b"c"])
    assert not tracker.watching
    tracker.failed("7-2", "chat", digest, "call-1", 1000, 0)
    assert tracker.resend("7-2", "chat", digest_of([b"abc"]), 2000, 0) == {
        "count": 1,
        "of": "call-1",
        "reason": "same_bytes",
    }
    assert tracker.resend("7-2", "chat", digest_of([b"abd"]), 2000, 0) is None
    assert tracker.resend("7-3", "chat", digest, 2000, 0) is None
    assert tracker.resend("7-2", "messages", digest, 2000, 0) is None
    assert tracker.resend("7-2", "chat", digest, 1001 + WINDOW_NS, 0) is None
    assert tracker.resend("7-2", "chat", digest, 500, 0) is None, (
        "it began before the failure was known"
    )
    assert tracker.resend("7-2", "chat", digest, 2000, 3) == {
        "count": 3,
        "of": "call-1",
        "reason": "header",
    }
    assert tracker.resend("9-9", "chat", None, 2000, 1) == {
        "count": 1,
        "of": None,
        "reason": "header",
    }


def test_remembered_failures_are_bounded() -> None:
    """Ten thousand failed calls do not grow the tracker without end, and the newest are the ones kept."""
    tracker = ResendTracker()
    for number in range(10_000):
        tracker.failed(str(number), "chat", b"d", f"call-{number}", number, 0)
    assert tracker.resend("9999", "chat", b"d", 10_000, 0) is not None
    assert tracker.resend("0", "chat", b"d", 10_000, 0) is None
