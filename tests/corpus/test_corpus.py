"""Every recorded exchange through the real middleware: same bytes to the client, same reading as the official SDKs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_gym.dialects import DialectName
from tests.capture.asgi import Rig
from tests.corpus.exchanges import Recorded, exchanges
from tests.corpus.explained import EXPLAINED, EXPLAINED_BY_CHUNKS, EXPLAINED_KINDS
from tests.corpus.serving import CHUNKINGS, recorded, serve
from tests.corpus.summary import differences


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "captures")
    yield rig
    rig.close()


@pytest.fixture(scope="module")
def corpus(shared_dir: Path) -> list[Recorded]:
    return list(exchanges(shared_dir / "corpus"))


@pytest.fixture(scope="module")
def derived(shared_dir: Path) -> list[Recorded]:
    return list(exchanges(shared_dir / "corpus", "derived"))


@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
async def test_recorded_exchanges_read_as_the_official_sdks_read_them(
    rig: Rig,
    corpus: list[Recorded],
    dialect: DialectName,
    chunking: str,
    record_property: Callable[[str, object], None],
) -> None:
    """However an exchange is chunked, the client gets its bytes and the record agrees with the official
    SDK; at least 99 % of a dialect agree, and every other one is explained by name. So is each one where only the
    SDK's reading of the single chunks agrees, and not its accumulator.
    """
    chosen = [exchange for exchange in corpus if exchange.dialect == dialect]
    disagreeing: dict[str, list[str]] = {}
    by_chunks: set[str] = set()
    for number, exchange in enumerate(chosen):
        rollout_id = f"{number}-0"
        assert await serve(rig, exchange, rollout_id, chunking) == exchange.body, exchange.path
        _, record = recorded(rig, rollout_id)
        assert record.status_code == exchange.status_code
        found = differences(record, exchange)
        if found:
            disagreeing[exchange.path] = found
        elif differences(record, exchange, strictly=True):
            by_chunks.add(exchange.path)
    agreeing = len(chosen) - len(disagreeing)
    record_property("agree", f"{agreeing} of {len(chosen)}")
    assert set(disagreeing) == {e.path for e in chosen if e.path in EXPLAINED}, disagreeing
    assert by_chunks == {e.path for e in chosen if e.path in EXPLAINED_BY_CHUNKS}
    assert agreeing >= 0.99 * len(chosen)


async def test_derived_exchanges_read_as_the_official_sdks_read_them(
    rig: Rig, derived: list[Recorded]
) -> None:
    """Odd line ends, framing, cuts and errors: the reading of the bytes stays the SDK's, or is explained."""
    disagreeing: dict[str, list[str]] = {}
    for number, exchange in enumerate(derived):
        assert await serve(rig, exchange, f"{number}-0", "random") == exchange.body, exchange.path
        _, record = recorded(rig, f"{number}-0")
        found = differences(record, exchange)
        if found and (exchange.dialect, exchange.transform) not in EXPLAINED_KINDS:
            disagreeing[exchange.path] = found
    assert not disagreeing


CUT = {"trunc-at-boundary", "trunc-before-terminal", "trunc-mid-json", "no-DONE"}


async def test_exactly_the_streams_without_their_terminal_event_are_truncated(
    rig: Rig, derived: list[Recorded]
) -> None:
    """Cut streams are `stream_truncated` with what had come; an error in the stream is `upstream_error`;
    no other transformation of a stream makes it either.
    """
    for number, exchange in enumerate(derived):
        await serve(rig, exchange, f"{number}-0", "random")
        raw, _ = recorded(rig, f"{number}-0")
        if exchange.transform in CUT:
            wanted = "stream_truncated"
        elif exchange.transform == "error-mid-stream":
            wanted = "upstream_error"
        else:
            wanted = None
        assert raw["error_category"] == wanted, exchange.path
        assert isinstance(raw["response"], dict), exchange.path
        assert (raw["stream"]["terminal"] == "none") == (wanted == "stream_truncated")
