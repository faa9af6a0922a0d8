"""Parquet out: one row a call, typed, readable elsewhere, in bounded memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_gym.capture import parquet
from otel_gym.capture.parquet import COLUMNS, export_parquet
from otel_gym.capture.raw_record import build_raw_record
from otel_gym.capture.store import CaptureStore
from otel_gym.errors import UsageProblem
from tests.capture.calls import finished_call

duckdb = pytest.importorskip("duckdb")
pq = pytest.importorskip("pyarrow.parquet")


def test_duckdb_reads_the_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record is a typed row, its payloads are JSON that comes back equal, over several row groups."""
    monkeypatch.setattr(parquet, "GROUP_ROWS", 3)
    store = CaptureStore(tmp_path / "captures")
    raws = {}
    for rollout_id in ("a", "b"):
        for _ in range(5):
            raw = build_raw_record(finished_call(rollout_id, started_at=1_700_000_000.5))
            raws[raw["model_call_id"]] = raw
            store.record(rollout_id, raw)
    store.record("b", {"model_call_id": "odd", "status_code": "not a number", "request": {"x": 1}})
    with store.path_for("b").open("ab") as file:
        file.write(b"torn")
    out = tmp_path / "calls.parquet"
    outcome = export_parquet(store, out)
    assert (outcome.rollouts, outcome.calls) == (2, 11)
    assert (outcome.damaged_lines, outcome.invalid_records) == (1, 1)
    relation = duckdb.sql(
        f"select model_call_id, call_index, tokens_in, epoch(started_at), request, response, finish_reason from '{out}' where invalid is null order by rollout_id, call_index"
    ).fetchall()
    assert len(relation) == 10
    for name, index, tokens_in, started_at, request, response, finish_reason in relation:
        assert json.loads(request) == raws[name]["request"]
        assert json.loads(response) == raws[name]["response"]
        assert (tokens_in, started_at, finish_reason) == (10, 1_700_000_000.5, "stop")
        assert 0 <= index < 5
    [(reason, request)] = duckdb.sql(
        f"select invalid, request from '{out}' where invalid is not null"
    ).fetchall()
    assert "status_code" in reason and json.loads(request) == {"x": 1}
    described = duckdb.sql(f"describe select * from '{out}'").fetchall()
    assert [row[0] for row in described] == list(COLUMNS)
    [(groups,)] = duckdb.sql(
        f"select count(distinct row_group_id) from parquet_metadata('{out}')"
    ).fetchall()
    assert groups == 4


def test_hostile_values_do_not_stop_the_export(tmp_path: Path) -> None:
    """Numbers that no column holds are left out, and the row stays."""
    store = CaptureStore(tmp_path / "captures")
    usage = {"prompt_tokens": 2**63, "completion_tokens": 1}
    store.record("r", {"model_call_id": "a", "dialect": "chat", "response": {"usage": usage}})
    store.record("r", {"model_call_id": "b", "started_at": 1e300, "status_code": 2**40})
    store.record("r", {"model_call_id": "c", "started_at": 1.7e12})  # in milliseconds
    with store.path_for("r").open("ab") as file:  # deeper than orjson writes, as others may
        file.write(b'{"model_call_id":"d","request":{"x":' + b"[" * 400 + b"]" * 400 + b"}}\n")
    out = tmp_path / "calls.parquet"
    assert export_parquet(store, out).calls == 4
    assert len(pq.read_table(out).to_pylist()) == 4
    rows = duckdb.sql(
        f"select tokens_in, tokens_out, status_code, started_at from '{out}' order by model_call_id"
    ).fetchall()
    assert rows == [(None, 1, None, None)] + [(None, None, None, None)] * 3


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    """`OUT` appears whole or not at all."""
    store = CaptureStore(tmp_path / "captures")
    store.record("a", {"model_call_id": "a"})
    (tmp_path / "calls.parquet").mkdir()
    with pytest.raises(UsageProblem, match=r"calls\.parquet: cannot be written"):
        export_parquet(store, tmp_path / "calls.parquet")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["calls.parquet", "captures"]


def test_an_unreadable_rollout_holds_up_no_other(tmp_path: Path) -> None:
    """The rows of all others are there, the rollout is named with the reason, and the file is as private as the captures."""
    store = CaptureStore(tmp_path / "captures")
    store.packed_path_for("a").write_bytes(b"no pack")
    store.path_for("b").symlink_to(tmp_path / "nowhere")
    store.record("c", {"model_call_id": "c"})
    out = tmp_path / "calls.parquet"
    outcome = export_parquet(store, out)
    assert outcome.calls == 1 and set(outcome.unreadable) == {"a", "b"}
    assert "a.capture.jsonl.zst" in outcome.unreadable["a"]
    assert pq.read_table(out, columns=["rollout_id"]).to_pylist() == [{"rollout_id": "c"}]
    assert out.stat().st_mode & 0o777 == store.file_mode
