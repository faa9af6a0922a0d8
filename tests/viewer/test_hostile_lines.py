"""Lines that no honest client sends cost nobody more than their own page, and not even that."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from otel_gym.viewer.charts import nice_ticks
from otel_gym.viewer.nesting import LEVELS, readable, shallow
from tests.viewer.captures import append, conversation, write_rollout, write_run
from tests.viewer.server import RunningViewer, View

PAGES = ("/", "/run.json", "/rollout/0-0/", "/rollout/0-0.json", "/compare?a=0-0&b=1-0", "/compare.json?a=1-0&b=0-0", "/rollout/0-0/call/0/", "/rollout/0-0/call/0.json", "/rollout/0-0/call/0/curl.txt", "/rollout/0-0/call/0/raw/request", "/rollout/0-0/call/0/raw/response", "/rollout/0-0/call/0/raw/line", "/api/traces?service=otel-gym&start=0", "/api/v3/trace-summaries?query.startTimeMin=1970-01-01T00:00:00Z&query.startTimeMax=2200-01-01T00:00:00Z")  # fmt: skip


def _nested(depth: int, open_with: str) -> str:
    return open_with * depth + "1" + {"[": "]", '{"a":': "}"}[open_with] * depth


def _check_all(viewer: RunningViewer) -> None:
    assert viewer.index.problem is None
    for path in PAGES:
        answer = viewer.client.get(path)
        assert answer.status_code == 200, (path, answer.text[:300])


@pytest.mark.parametrize("open_with", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [240, 300, 1000])
def test_json_of_any_depth_has_pages(
    tmp_path: Path, view: View, depth: int, open_with: str
) -> None:
    """Nested as deep as a reader takes it, in every place, a line is indexed and shown, and the line itself is served as it stands."""
    directory = write_run(tmp_path / "run")
    nested = _nested(depth, open_with)
    (record,) = conversation("0-0", 1)
    record["request"]["messages"].append({"role": "user", "content": "@deep@"})
    record["request"]["temperature"] = "@deep@"
    record["sampling"]["requested"]["temperature"] = "@deep@"
    record["sampling"]["effective"]["temperature"] = "@deep@"
    call = {"function": {"name": "f", "arguments": nested}}
    message = {"content": "@deep@", "tool_calls": [call, {"function": {"arguments": "@deep@"}}]}
    record["response"]["choices"].append({"message": message})
    record["engine"]["extra"] = record["unmerged"] = "@deep@"
    line = json.dumps(record).replace('"@deep@"', nested) + "\n"
    (directory / "0-0.capture.jsonl").write_text(line)
    append(directory, "1-0", conversation("1-0", 2))
    write_rollout(directory, "0-0", note="@deep@")
    path = directory / "0-0.rollout.json"
    path.write_text(path.read_text().replace('"@deep@"', nested))
    viewer = view(directory)
    _check_all(viewer)
    assert viewer.client.get("/rollout/0-0/call/0/raw/line").text == line
    assert viewer.json("/run.json")["totals"]["calls"] == 3


def test_what_lies_too_deep_becomes_its_text() -> None:
    """Below the levels that stay, a value is the JSON text of what it was; what is not deep is not touched."""
    value: Any = {"b": [1, "x", None, {}, [], {"c": 'q"'}], "a": 1.5}
    for _ in range(400):
        value = [value, {"more": value}] if _ == 0 else [value]
    cut = shallow(value)
    levels = 0
    while isinstance(cut, list):
        levels, cut, value = levels + 1, cut[0], value[0]
    assert levels == LEVELS
    assert json.loads(cut) == value
    plain = {"a": [[["b"]]]}
    assert readable(plain) is plain


def _of_another_producer(record: dict[str, Any]) -> dict[str, Any]:
    """The record with the keys that NeMo Gym writes, and no other."""
    own = ("schema", "rollout_id", "stream", "engine", "sampling")
    return {key: value for key, value in record.items() if key not in own}


def test_a_run_of_another_producer_has_all_pages(tmp_path: Path, view: View) -> None:
    """Lines with NeMo Gym's keys alone and no run file: streamed calls and others, every page of the rollout, of each call and of the comparison."""
    directory = tmp_path / "run"
    directory.mkdir()
    for rollout_id in ("0-0", "1-0"):
        records = [_of_another_producer(record) for record in conversation(rollout_id, 3)]
        records[1]["response_raw"] = None
        records[2].update(error_category="stream_truncated")
        append(directory, rollout_id, records)
    viewer = view(directory)
    _check_all(viewer)
    found = viewer.json("/rollout/0-0.json")["calls"]
    assert [(call["streamed"], call["terminal"]) for call in found] == [
        (True, "complete"),
        (False, None),
        (True, "none"),
    ]
    for number in range(3):
        assert "Time to first chunk" in viewer.page(f"/rollout/0-0/call/{number}/")


@pytest.mark.parametrize("category", [[], {}, 5, True, "", "x" * 900])
@pytest.mark.parametrize("own", [True, False], ids=["own", "another producer's"])
def test_any_error_category_is_indexed(
    tmp_path: Path, view: View, category: object, own: bool
) -> None:
    """A category of a wrong type costs no page, in our lines and in those of another producer."""
    directory = write_run(tmp_path / "run")
    (record,) = conversation("0-0", 1)
    record["error_category"] = category
    append(directory, "0-0", [record if own else _of_another_producer(record)])
    append(directory, "1-0", conversation("1-0", 2))
    _check_all(view(directory))


CLOCKS: dict[str, list[tuple[float | None, float | None]]] = {
    "milliseconds for seconds": [(0.0, 1.0), (1.79e12, 1.79e12 + 1)],
    "before the epoch": [(-5e9, 1.0), (1.79e9, 1.7e9)],
    "absurdly late": [(1e14, 9e14), (1.0, 2.0)],
    "running backwards": [(1.79e9, 1.79e9 - 100), (1.79e9 - 50, 1.79e9 - 60)],
    "standing still": [(1.79e9, 1.79e9), (1.79e9, 1.79e9)],
    "none": [(None, None), (None, 1.79e9)],
}


@pytest.mark.parametrize("name", CLOCKS)
def test_any_clock_has_pages(tmp_path: Path, view: View, name: str) -> None:
    """Whatever the times of a line are, every page is there, and no axis has more than a few marks."""
    directory = write_run(tmp_path / "run")
    records = conversation("0-0", 2)
    for record, (started, completed) in zip(records, CLOCKS[name], strict=True):
        record.update(started_at=started, completed_at=completed)
    append(directory, "0-0", records)
    append(directory, "1-0", conversation("1-0", 2))
    viewer = view(directory)
    _check_all(viewer)
    assert len(viewer.json("/run.json")["series"]["points"]) <= 62
    assert viewer.page("/rollout/0-0/").count('class="tick"') < 50


def test_one_clock_gone_wrong_does_not_flatten_the_charts(tmp_path: Path, view: View) -> None:
    """Calls dated outside of this century are left out of the figures over time as long as there are others; nothing else leaves them out."""
    directory = write_run(tmp_path / "run")
    append(directory, "1-0", conversation("1-0", 10))
    viewer = view(directory)
    before = viewer.json("/run.json")
    wrong = conversation("0-0", 2)
    wrong[0].update(started_at=1.79e12, completed_at=1.79e12 + 1)
    wrong[1].update(started_at=0.0, completed_at=1.0)
    append(directory, "0-0", wrong)
    viewer.index.refresh()
    after = viewer.json("/run.json")
    assert after["series"] == before["series"]
    assert after["totals"]["calls"] == 12
    for key in ("started_at", "completed_at"):
        assert after["totals"][key] == before["totals"][key]
    (directory / "1-0.capture.jsonl").unlink()
    viewer.index.refresh()
    assert sum(point["calls"] for point in viewer.json("/run.json")["series"]["points"]) == 2


@pytest.mark.parametrize("length", [1e-9, 0.003, 0.9, 1, 7, 59, 3600, 2.6e9, 1e15])
def test_an_axis_has_few_marks_at_round_places(length: float) -> None:
    """At most a handful, the first at 0, none beyond the end, all the same distance apart."""
    ticks = nice_ticks(length)
    assert ticks[0] == 0
    assert len(ticks) <= 6
    assert ticks[-1] <= length
    assert len({round(b - a, 6) for a, b in itertools.pairwise(ticks)}) <= 1


def test_a_table_of_absurd_length_is_cut_on_the_page_and_whole_in_the_twin(
    tmp_path: Path, view: View
) -> None:
    """20,000 sampling parameters: the page shows some and says so, the twin has them all."""
    directory = write_run(tmp_path / "run")
    (record,) = conversation("0-0", 1)
    names = [f"k{number}" for number in range(20_000)]
    record["sampling"] = {"requested": dict.fromkeys(names, 1), "pinned": names}
    append(directory, "0-0", [record])
    viewer = view(directory)
    assert "19,802 more: see the JSON" in viewer.page("/rollout/0-0/call/0/")
    assert len(viewer.json("/rollout/0-0/call/0.json")["sampling"]) == 20_002
