"""The benchmark runs, checks what it replays, and prints its tables."""

from __future__ import annotations

import json

import pytest

from otel_gym.replay import benchmark

SMALL = ["--turns", "1", "2", "--prompt-tokens", "40", "--generated-tokens", "20", "--layers", "3"]


def test_the_json_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """Each count of turns has a row for each form of input, with ours, the baseline's and the ratios."""
    benchmark.main([*SMALL, "--top-k", "2", "--repeats", "1", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert [(row["turns"], row["form"]) for row in result["rows"]] == [
        (turns, form) for turns in (1, 2) for form in ("lists", "bytes", "string")
    ]
    for row in result["rows"]:
        for name in ("otel-gym", "plain json"):
            assert set(row[name]["seconds"]) == {
                "capture", "snapshot", "restore", "replay", "wire", "again", "checkpoints"
            }  # fmt: skip
            assert set(row[name]["cpu_seconds"]) == set(row[name]["seconds"])
            assert row[name]["archive_bytes"] > 9000 * row["turns"]
            assert row[name]["checkpoint_bytes"] > 0
            assert set(row[name]["peak_bytes"]) == {"capture", "snapshot", "restore", "replay"}
        assert {"capture", "wire", "peak_restore", "archive_bytes"} <= set(row["times_better"])
        assert "times_better_than_published" not in row


def test_the_tables_name_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    """The printed tables have a line for each row and implementation."""
    benchmark.main([*SMALL, "--top-k", "1", "--repeats", "1"])
    shown = capsys.readouterr().out
    assert shown.count("plain json  ") == 12
    assert shown.count("plain json cpu") == 6
    assert "peak restore" in shown
    assert "plain / ours" in shown


def test_the_published_shape_is_compared_with_the_published_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Turns of the published shape show each published figure as a ratio to ours, by its machine."""
    benchmark.main(["--turns", "1", "2", "--repeats", "1", "--no-baseline", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    lists = {row["turns"]: row for row in rows if row["form"] == "lists"}
    compared = lists[1]
    ratios = compared["times_better_than_published"]
    ours = compared["otel-gym"]
    assert ratios["published, any machine"]["archive_bytes"] > 2
    assert ratios["published, Apple arm64"]["restore"] == pytest.approx(
        0.108 / ours["cpu_seconds"]["restore"], abs=0.01
    )
    assert ratios["published, Apple arm64"]["wire"] == pytest.approx(
        0.048 / ours["cpu_seconds"]["wire"], abs=0.01
    )
    assert lists[2]["times_better_than_published"] == {}


def test_a_wrong_replay_stops_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of a replay that changes one id are never printed."""

    class Wrong(benchmark.OurSteps):
        def replay(self, history: object) -> list[object]:
            items = super().replay(history)
            items[0]["prompt_token_ids"][0] += 1
            return items

    monkeypatch.setattr(benchmark, "OurSteps", Wrong)
    with pytest.raises(benchmark.ReplayDiffers, match="prompt_token_ids differs"):
        benchmark.main([*SMALL, "--repeats", "1", "--no-baseline"])
