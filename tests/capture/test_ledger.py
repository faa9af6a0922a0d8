"""The ledger accounts for every call, and says whole only where nothing is missing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_gym.capture import producer
from otel_gym.capture.identity import ProcessIdentity
from otel_gym.capture.ledger import RolloutLedger, read_ledger
from otel_gym.capture.open_files import make_directories
from otel_gym.capture.producer import LostCall, ProducerStatus
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.writer import RecordWriter
from otel_gym.cli.main import run
from tests.capture.calls import finished_call, fork


@pytest.fixture
def store(tmp_path: Path) -> CaptureStore:
    return CaptureStore(tmp_path)


def one(store: CaptureStore, rollout_id: str = "r") -> RolloutLedger:
    return {account.rollout_id: account for account in read_ledger(store).rollouts}[rollout_id]


def test_an_empty_directory_is_whole(store: CaptureStore) -> None:
    """Where nothing was begun, nothing is missing."""
    ledger = read_ledger(store)
    assert ledger.whole and ledger.rollouts == [] and ledger.totals()["missing"] == 0


def test_records_are_examined(store: CaptureStore) -> None:
    """Duplicates, cut bodies, redaction, clocks set back and damaged lines are counted."""
    for record in (
        {"model_call_id": "a", "started_at": 10.0, "completed_at": 11.0},
        {"model_call_id": "a"},
        {"model_call_id": "b", "started_at": 10.0, "completed_at": 9.0},
        {"model_call_id": "c", "request_cut": {"size_bytes": 5}},
        {"model_call_id": "d", "redacted": ["request.x"]},
        {"dialect": "chat"},
        {"dialect": "chat"},
    ):
        store.record("r", record)
    assert read_ledger(store).whole
    with store.path_for("r").open("ab") as file:
        file.write(b"torn")
    account = one(store)
    assert (account.recorded, account.duplicates, account.clock_anomalies) == (6, 1, 1)
    assert (account.oversized, account.redacted, account.torn) == (1, 1, 1)
    assert account.torn_at_bytes == [store.path_for("r").stat().st_size - 4]
    assert not account.whole and account.missing == 1


def test_calls_without_token_counts_are_named(
    store: CaptureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Answered calls whose engine reported no usage are counted and told, and are no missing evidence; failed calls are not."""
    usage = {"prompt_tokens": 1, "completion_tokens": 0}
    for number, (status, response) in enumerate(
        [
            (200, {"choices": []}),
            (200, {"choices": [], "usage": None}),
            (200, {"usage": usage}),
            (500, {}),
            (200, None),
        ]
    ):
        record = {
            "model_call_id": str(number),
            "dialect": "chat",
            "status_code": status,
            "response": response,
        }
        store.record("r", record)
    assert one(store).without_usage == 2 and read_ledger(store).whole
    assert run(["doctor", str(store.root)]) == 0
    assert "2 without usage" in " ".join(capsys.readouterr().out.split())


def test_a_call_in_flight_is_not_missing(store: CaptureStore) -> None:
    """Pending calls of a living producer are counted and leave the directory whole."""
    writer = RecordWriter(store.root)
    claim = writer.begin("r", "a" * 32)
    account = one(store)
    assert (account.started, account.pending_live, account.pending_dead) == (1, 1, 0)
    assert read_ledger(store).whole
    writer.release(claim)
    writer.close(5)


def test_a_dead_producers_calls_are_missing(store: CaptureStore) -> None:
    """After SIGKILL a call without record is missing, one with a record is not; clearing the attempt ends it."""
    writer = RecordWriter(store.root)
    pid = fork()
    if pid == 0:
        writer.begin("r", "b" * 32)
        facts = finished_call("r")
        asyncio.run(writer.write(facts, writer.begin("r", facts.model_call_id)))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    account = one(store)
    assert (account.started, account.recorded, account.pending_dead) == (2, 1, 1)
    ledger = read_ledger(store)
    assert not ledger.whole
    assert ledger.begun_unaccounted == 0
    store.clear("r")
    assert (one(store).started, one(store).cleared) == (0, 1)
    assert read_ledger(store).whole


def test_records_removed_from_outside_are_noticed(store: CaptureStore) -> None:
    """A capture file that somebody deletes leaves its calls unaccounted for."""

    async def go() -> None:
        writer = RecordWriter(store.root)
        for _ in range(3):
            facts = finished_call("r")
            await writer.write(facts, writer.begin("r", facts.model_call_id))
        writer.close(5)

    asyncio.run(go())
    assert read_ledger(store).whole
    store.path_for("r").unlink()
    ledger = read_ledger(store)
    assert (ledger.begun_unaccounted, ledger.whole) == (3, False)


def test_a_marker_alone_is_missing_evidence(store: CaptureStore) -> None:
    """An incomplete marker says that something may be missing, and the ledger does not overrule it."""
    store.mark_incomplete("r")
    assert one(store).incomplete_marker and not read_ledger(store).whole


def test_exported_records_are_those_a_backend_took(store: CaptureStore) -> None:
    """The export's journals say which lines were accepted; without a journal nothing is said."""
    places = [store.record("r", {"model_call_id": str(i)}) for i in range(4)]
    assert one(store).exported is None
    journal = store.layout.private / "cursors" / "backend.jsonl"
    journal.parent.mkdir(parents=True)
    end = places[1].offset_bytes + places[1].length_bytes
    journal.write_text(
        f'["r.capture.jsonl","mark",0,{places[1].offset_bytes}]\n["r.capture.jsonl","mark",{places[1].offset_bytes},{end}]\nbroken\n'
    )
    assert one(store).exported == 2


def test_a_rollout_without_calls_is_loud(
    store: CaptureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rollout that was played past the model server looks like no rollout at all: the ledger says so, and does not call the directory whole."""
    (store.root / "r.rollout.json").write_text("{}")
    (store.root / "s.rollout.json").write_text("{}")
    store.record("s", {"model_call_id": "a"})
    assert one(store).uncaptured and not one(store, "s").uncaptured
    assert read_ledger(store).totals()["uncaptured"] == 1
    assert run(["doctor", str(store.root)]) == 1
    assert "r: was played, and no model call of it is known." in capsys.readouterr().out


def test_nothing_is_not_called_whole(
    store: CaptureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a directory in which no call was begun doctor says just that."""
    assert run(["doctor", str(store.root)]) == 0
    out = capsys.readouterr().out
    assert "No model call was begun here" in out and "Whole" not in out


def test_foreign_names_are_told(store: CaptureStore) -> None:
    """Capture files whose names are no ids are listed, not read."""
    (store.root / ".hid.capture.jsonl").write_text("{}\n")
    ledger = read_ledger(store)
    assert ledger.invalid_files == [".hid.capture.jsonl"]
    assert ledger.rollouts == []


def test_the_json_form_says_everything(store: CaptureStore) -> None:
    """Every count of the issue's list is in the JSON form, per rollout and in total."""
    store.record("r", {"model_call_id": "a"})
    form = read_ledger(store).as_mapping()
    names = {
        *("started", "recorded", "exported", "stale", "torn", "pending_live", "pending_dead"),
        *("oversized", "duplicates", "clock_anomalies", "incomplete_marker", "lost", "missing"),
    }
    assert names <= form["rollouts"][0].keys()
    assert names - {"exported", "incomplete_marker"} <= form["totals"].keys()
    assert form["totals"]["incomplete_markers"] == 0
    assert {"unprefixed", "invalid_ids", "whole", "producers"} <= form.keys()


def _status(store: CaptureStore, change: Callable[[ProducerStatus], None]) -> None:
    """A producer that has ended well, after `change`."""
    make_directories(store.layout, store.directory_mode)
    status = ProducerStatus(store.layout, ProcessIdentity.mine(), store.file_mode)
    change(status)
    status.flush(0, closed=True)


def _lose_all(status: ProducerStatus) -> None:
    for i in range(producer.MAX_NAMED + 2):
        status.note_lost(LostCall("r", f"{i:032x}", 0, "no room", 1.0))


def _lost(generation: int) -> Callable[[CaptureStore], None]:
    loss = LostCall("r", "f" * 32, generation, "no room", 1.0)
    return lambda store: _status(store, lambda status: status.note_lost(loss))


def _append(record: dict[str, Any]) -> Callable[[CaptureStore], None]:
    return lambda store: store.record("r", record) and None


def _tear(store: CaptureStore) -> None:
    with store.path_for("r").open("ab") as file:
        file.write(b"torn")


def _cleared_and_lost(store: CaptureStore) -> None:
    store.clear("r")
    _lost(0)(store)


@pytest.mark.parametrize(
    ("anomaly", "code"),
    [
        (lambda store: None, 0),
        (_append({"model_call_id": "a" * 32}), 0),
        (_append({"model_call_id": "b", "started_at": 10.0, "completed_at": 9.0}), 0),
        (_append({"model_call_id": "c", "request_cut": {"size_bytes": 9}}), 0),
        (_append({"model_call_id": "d", "redacted": ["request.user"]}), 0),
        (lambda store: store.clear("r"), 0),
        (lambda store: store.stale_path_for("r").write_bytes(b'{"model_call_id":"e"}\n'), 0),
        (lambda store: _status(store, lambda status: status.note_unclaimed("r")), 0),
        (_cleared_and_lost, 0),
        (_lost(0), 1),
        (_lost(-1), 1),
        (lambda store: _status(store, _lose_all), 1),
        (lambda store: _status(store, lambda status: status.note_unprefixed()), 1),
        (lambda store: _status(store, lambda status: status.note_invalid_id("..")), 1),
        (lambda store: store.mark_incomplete("other"), 1),
        (_tear, 1),
        (lambda store: store.packed_path_for("s").write_bytes(b"no pack"), 1),
        (lambda store: (store.root / "s.rollout.json").write_text("{}"), 1),
    ],
)
def test_the_exit_code_of_each_anomaly(
    store: CaptureStore, anomaly: Callable[[CaptureStore], object], code: int
) -> None:
    """1 where evidence is missing, 0 where something is only remarkable; the JSON form agrees."""
    store.record("r", {"model_call_id": "a" * 32})
    anomaly(store)
    assert run(["doctor", str(store.root), "--json"]) == code
    assert read_ledger(store).whole == (code == 0)
