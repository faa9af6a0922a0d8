"""`doctor`, `pack` and `export-parquet` as a person runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_gym.capture.store import CaptureStore
from otel_gym.cli.main import run


@pytest.fixture
def store(tmp_path: Path) -> CaptureStore:
    store = CaptureStore(tmp_path / "captures")
    for i in range(3):
        store.record("7-0", {"model_call_id": str(i), "dialect": "chat"})
    return store


def test_doctor_says_whole(store: CaptureStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 and one line where every call is accounted for."""
    assert run(["doctor", str(store.root)]) == 0
    assert "every call is accounted for" in capsys.readouterr().out


def test_doctor_says_what_is_missing(
    store: CaptureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, the rollout's line, and the damage with its place."""
    with store.path_for("7-0").open("ab") as file:
        file.write(b"torn")
    store.mark_incomplete("8-0")
    assert run(["doctor", str(store.root)]) == 1
    out = capsys.readouterr().out
    assert "7-0" in out and "8-0" in out and "incomplete" in out
    assert f"at bytes {store.path_for('7-0').stat().st_size - 4}" in out


def test_doctor_prints_json(store: CaptureStore, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints the ledger and nothing else."""
    assert run(["doctor", str(store.root), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["whole"] and printed["totals"]["recorded"] == 3


def test_pack_and_export(
    store: CaptureStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A packed directory is exported as before."""
    assert run(["pack", str(store.root)]) == 0
    assert "1 rollout was left alone" in capsys.readouterr().out
    assert run(["pack", str(store.root), "--idle", "0", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in printed["rollouts"]] == ["packed"]
    pytest.importorskip("pyarrow")
    out = tmp_path / "calls.parquet"
    assert run(["export-parquet", str(store.root), str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calls"] == 3
    assert run(["export-parquet", str(store.root), str(out)]) == 0
    assert "3 calls of 1 rollout in" in capsys.readouterr().out


def test_pack_goes_on_after_a_bad_file(
    store: CaptureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """One rollout that cannot be packed is named with exit code 1; the others are packed."""
    store.record("bad", {"model_call_id": "x"})
    store.packed_path_for("bad").write_bytes(b"not ours")
    assert run(["pack", str(store.root), "--idle", "0"]) == 1
    out = capsys.readouterr().out
    assert "Packed 1 rollout:" in out and "bad.capture.jsonl.zst" in out
    assert store.packed_path_for("7-0").exists() and store.path_for("bad").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor", "nowhere"],
        ["pack", "nowhere"],
        ["export-parquet", "nowhere", "x.parquet"],
        ["export-parquet", ".", "nowhere/x.parquet"],
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A directory that is not there is exit code 2 and one line on stderr."""
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "nowhere" in printed.err and len(printed.err.splitlines()) == 1
