"""The journal of results: durable, one writer, torn rows repaired."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from otel_gym.errors import StoreUnavailable, UsageProblem
from otel_gym.rollouts.journal import Journal
from tests.rollouts.conftest import read_rows


async def test_rows_are_there_when_append_returns(tmp_path: Path) -> None:
    """Rows appended at once are all there, each whole, and each before its own append returned."""
    path = tmp_path / "new" / "out.jsonl"
    journal = Journal(path)

    async def append(number: int) -> None:
        await journal.append({"n": number})
        assert {"n": number} in read_rows(path)

    await asyncio.gather(*(append(number) for number in range(50)))
    journal.close()
    assert sorted(row["n"] for row in read_rows(path)) == list(range(50))


async def test_rows_that_wait_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty rows that come together cost a handful of syncs, not fifty."""
    syncs = 0
    original = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        nonlocal syncs
        syncs += 1
        original(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    journal = Journal(tmp_path / "out.jsonl")
    await asyncio.gather(*(journal.append({"n": number}) for number in range(50)))
    journal.close()
    assert 1 <= syncs <= 5


async def test_a_torn_row_becomes_its_own_line(tmp_path: Path) -> None:
    """A row that a crash has cut never swallows the next one."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n":')
    journal = Journal(path)
    assert journal.torn
    await journal.append({"n": 2})
    journal.close()
    assert path.read_bytes() == b'{"n": 1}\n{"n":\n{"n":2}\n'


def test_one_collection_at_a_time(tmp_path: Path) -> None:
    """A second journal on the same file is refused with a clear line, and possible once the first is closed."""
    first = Journal(tmp_path / "out.jsonl")
    with pytest.raises(UsageProblem, match="another collection is writing it"):
        Journal(tmp_path / "out.jsonl")
    first.close()
    first.close()
    Journal(tmp_path / "out.jsonl").close()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """An output below a file is one clear line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageProblem, match="cannot be written"):
        Journal(tmp_path / "file" / "out.jsonl")


async def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every append of a batch that could not be made durable raises, nothing of it stays, and the next one is whole."""
    path = tmp_path / "out.jsonl"
    journal = Journal(path)
    await journal.append({"n": 0})
    original = os.fdatasync

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    results = await asyncio.gather(
        *(journal.append({"n": number}) for number in (1, 2, 3)), return_exceptions=True
    )
    assert [type(one) for one in results] == [StoreUnavailable] * 3
    assert str(results[0]) == f"{path}: cannot be written: No space left on device"
    monkeypatch.setattr(os, "fdatasync", original)
    await journal.append({"n": 4})
    journal.close()
    assert read_rows(path) == [{"n": 0}, {"n": 4}]
