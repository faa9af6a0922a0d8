"""Ids that anybody can compute from names."""

from __future__ import annotations

import hashlib

import pytest

from otel_gym.correlation.trace_ids import root_span_id, span_id, trace_id
from otel_gym.correlation.traceparent import parse_traceparent


def test_ids_follow_the_published_formula() -> None:
    """The trace and root span ids are the first bytes of SHA-256 over tag, run and rollout, joined by NUL."""
    digest = hashlib.sha256(b"otel-gym/trace/1\x00run\x007-2").hexdigest()
    root = hashlib.sha256(b"otel-gym/root/1\x00run\x007-2").hexdigest()
    assert trace_id("run", "7-2") == digest[:32]
    assert root_span_id("run", "7-2") == root[:16]


def test_a_different_run_or_rollout_is_a_different_trace() -> None:
    """Neither half of the name is ignored, and their border counts."""
    assert (
        len(
            {
                trace_id("a", "b"),
                trace_id("a", "c"),
                trace_id("c", "b"),
                trace_id("ab", ""),
                trace_id("", "ab"),
            }
        )
        == 5
    )


def test_a_calls_span_is_the_first_half_of_its_id() -> None:
    """32 hex digits give their first 16; anything else is hashed to a valid id."""
    assert span_id("0123456789abcdef" * 2) == "0123456789abcdef"
    for odd in ("0" * 16 + "f" * 16, "0123456789ABCDEF" * 2, "call_7", ""):
        assert len(span_id(odd)) == 16 and int(span_id(odd), 16) != 0 and span_id(odd) != odd[:16]


@pytest.mark.parametrize(
    "value",
    [
        "", "garbage", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", "0" * 600,
    ],
)  # fmt: skip
def test_a_traceparent_that_the_specification_rejects_is_ignored(value: str) -> None:
    """Malformed, all-zero and forbidden headers give nothing."""
    assert parse_traceparent(value) is None


@pytest.mark.parametrize(
    "value", ["00-{}-{}-01", " 00-{}-{}-00 ", "cc-{}-{}-01-what-the-future-will-be-like"]
)
def test_a_traceparent_is_read_with_any_later_version(value: str) -> None:
    """Version 00 and later ones with more fields give the caller's ids, sampled or not."""
    found = parse_traceparent(value.format("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"))
    assert found is not None
    assert (found.trace_id, found.span_id) == (
        "4bf92f3577b34da6a3ce929d0e0e4736",
        "00f067aa0ba902b7",
    )
