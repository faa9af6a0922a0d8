"""Every page shows what the files hold, and its JSON twin the same."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from otel_gym.capture.pack import pack_rollout
from otel_gym.capture.store import CaptureStore
from otel_gym.correlation.trace_ids import span_id, trace_id
from otel_gym.counters import counted
from tests.viewer.captures import (
    EPOCH,
    append,
    call_id,
    chat_call,
    conversation,
    write_rollout,
    write_run,
)
from tests.viewer.server import RunningViewer, View


def test_run_page_and_twin_have_totals_series_and_rollouts(run_dir: Path, view: View) -> None:
    """The run page sums up all rollouts and lists them, the newest first."""
    viewer = view(run_dir)
    data = viewer.json("/run.json")
    assert data["totals"]["rollouts"] == 5
    assert data["totals"]["calls"] == 15
    assert data["totals"]["errors"] == 1
    assert data["totals"]["incomplete"] == 1
    assert data["totals"]["reward_mean"] == 0.5
    assert sum(point["calls"] for point in data["series"]["points"]) == 15
    assert [row["rollout_id"] for row in data["rollouts"]] == [
        "judge.of_everything",
        "1-0-a1",
        "1-0",
        "0-1",
        "0-0",
    ]
    page = viewer.page("/")
    for row in data["rollouts"]:
        assert f'href="/rollout/{row["rollout_id"]}/"' in page


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"q": "JUDGE"}, ["judge.of_everything"]),
        ({"task": "1"}, ["1-0-a1", "1-0"]),
        ({"attempt": "1"}, ["1-0-a1"]),
        ({"model": "smol"}, ["1-0"]),
        ({"state": "error"}, ["1-0"]),
        ({"state": "truncated"}, ["1-0-a1"]),
        ({"state": "incomplete"}, ["1-0"]),
        ({"reward_min": "0.5"}, ["0-0"]),
        ({"reward_max": "0.5"}, ["0-1"]),
        ({"sort": "calls", "order": "desc", "state": "clean"}, ["0-0", "1-0-a1", "0-1", "judge.of_everything"]),
        ({"sort": "id", "order": "asc"}, ["0-0", "0-1", "1-0", "1-0-a1", "judge.of_everything"]),
        ({"sort": "reward", "order": "asc", "q": "0-"}, ["0-1", "0-0", "1-0-a1"]),
    ],
)  # fmt: skip
def test_rollouts_can_be_filtered_and_sorted(
    small: RunningViewer, query: dict[str, str], expected: list[str]
) -> None:
    """Filters and orders of the query string decide which rollouts are listed, on the page as in the twin."""
    data = small.json("/run.json", **query)
    assert [row["rollout_id"] for row in data["rollouts"]] == expected
    assert data["matching"] == len(expected)
    page = small.page("/", **query)
    assert page.count("data-row") == len(expected)


@pytest.mark.parametrize(
    "query", ["sort=nothing", "state=x", "attempt=-1", "reward_min=much", "order=up"]
)
def test_a_query_that_makes_no_sense_is_refused(small: RunningViewer, query: str) -> None:
    """A value that is none is answered with 400 and the reason, not with a guess."""
    assert small.client.get(f"/?{query}").status_code == 400
    answer = small.client.get(f"/run.json?{query}")
    assert answer.status_code == 400
    assert query.split("=", maxsplit=1)[0] in answer.json()["error"]


def test_pages_of_a_long_list(tmp_path: Path, view: View) -> None:
    """A list of more rollouts than a page has goes on on the next, without a gap or a repetition."""
    directory = write_run(tmp_path / "run")
    for number in range(230):
        append(directory, f"{number}-0", conversation(f"{number}-0", 1, start=float(number)))
    viewer = view(directory)
    seen: list[str] = []
    for page in (1, 2, 3):
        data = viewer.json("/run.json", page=page, sort="id", order="asc")
        assert data["pages"] == 3
        seen += [row["rollout_id"] for row in data["rollouts"]]
    assert seen == [f"{number}-0" for number in range(230)]


def test_rollout_page_has_calls_gaps_attempts_and_neighbours(run_dir: Path, view: View) -> None:
    """The rollout page places its calls in time, names the gaps between, its attempts and its neighbours."""
    viewer = view(run_dir, jaeger_ui="http://jaeger.example:16686")
    data = viewer.json("/rollout/1-0-a1.json")
    assert [call["number"] for call in data["calls"]] == [0, 1, 2, 3]
    assert [round(gap["end_s"] - gap["start_s"], 3) for gap in data["gaps"]] == [0.3, 2.3]
    assert [call["beside"] for call in data["calls"]] == [0, 0, 0, 1]
    assert data["lanes"] == 2
    assert [one["rollout_id"] for one in data["attempts"]] == ["1-0", "1-0-a1"]
    assert (data["previous"], data["next"]) == ("1-0", None)
    assert data["jaeger_url"].startswith("http://jaeger.example:16686/trace/")
    assert data["rollout"]["outside_model_ms"] == 2600.0
    page = viewer.page("/rollout/1-0-a1/")
    assert page.count("data-row") == 4
    assert "2.30 s outside the model" in page
    assert 'href="/rollout/1-0/"' in page


def test_call_page_sets_new_messages_apart_from_repeated_ones(run_dir: Path, view: View) -> None:
    """The call page knows which messages an earlier call had already; the rest is new, then comes the answer."""
    viewer = view(run_dir)
    data = viewer.json("/rollout/0-0/call/3.json")
    assert data["extends"] == 2
    assert len(data["repeated"]) == 6
    assert [message["role"] for message in data["new"]] == ["assistant", "tool"]
    assert data["new"][1]["parts"][0]["text"] == "3"
    assert data["answer"][0]["parts"][0]["name"] == "add"
    assert {row["parameter"]: row["changed"] for row in data["sampling"]} == {
        "temperature": False,
        "top_p": True,
        "stream": False,
    }
    page = viewer.page("/rollout/0-0/call/3/")
    assert "6 messages repeated" in page
    assert "New since call #2" in page
    last = viewer.json("/rollout/0-0/call/4.json")
    assert [part["kind"] for part in last["answer"][0]["parts"]] == ["reasoning", "text"]


def test_an_edited_history_is_new_from_where_it_was_edited(tmp_path: Path, view: View) -> None:
    """Where a call does not continue another whole, what both have in common still counts as repeated."""
    directory = write_run(tmp_path / "run")
    records = conversation("4-0", 3)
    records[2]["request"]["messages"][2] = {"role": "assistant", "content": "[summary]"}
    append(directory, "4-0", records)
    data = view(directory).json("/rollout/4-0/call/2.json")
    assert data["extends"] == 0
    assert len(data["repeated"]) == 2
    assert data["new"][0]["parts"][0]["text"] == "[summary]"


def test_bodies_are_served_as_they_stand(run_dir: Path, view: View) -> None:
    """Request, response, stream and line come back byte for byte or as the same JSON; their type can't be guessed into a page."""
    viewer = view(run_dir)
    record = conversation("0-0", 5)[3]
    base = "/rollout/0-0/call/3/raw"
    assert viewer.json(f"{base}/request") == record["request"]
    assert viewer.json(f"{base}/response") == record["response"]
    stream = viewer.client.get(f"{base}/stream")
    assert stream.text == record["response_raw"]
    assert stream.headers["content-type"] == "text/plain; charset=utf-8"
    assert "sandbox" in stream.headers["content-security-policy"]
    line = viewer.client.get(f"{base}/line").content
    lines = (run_dir / "0-0.capture.jsonl").read_bytes().splitlines(keepends=True)
    assert line == lines[3]
    assert viewer.client.get(f"{base}/nothing").status_code == 404


def test_compare_finds_the_first_difference(tmp_path: Path, view: View) -> None:
    """Two rollouts of a task are compared call by call; the first call whose answer differs is shown with both answers."""
    directory = write_run(tmp_path / "run")
    one, other = conversation("8-0", 4), conversation("8-0", 4)
    for number, record in enumerate(other):
        record["model_call_id"] = call_id("8-1", number)
    for record in other[2:]:
        record["response"]["choices"][0]["message"] = {"content": "I give up."}
    append(directory, "8-0", one)
    append(directory, "8-1", other)
    viewer = view(directory)
    data = viewer.json("/compare.json", a="8-0", b="8-1")
    difference = data["first_difference"]
    assert difference["what"] == "the answer to the same request"
    assert difference["a"]["number"] == difference["b"]["number"] == 2
    assert difference["b"]["messages"][0]["parts"][0]["text"] == "I give up."
    assert all(pair["same_request"] for pair in data["calls"])
    page = viewer.page("/compare", a="8-0", b="8-1")
    assert "I give up." in page
    assert viewer.json("/compare.json", a="8-0", b="8-0")["first_difference"] is None


def test_ids_lead_to_their_pages(run_dir: Path, view: View) -> None:
    """A model call id, a span id and a trace id lead to the page of what they name; so does an address without its slash."""
    viewer = view(run_dir)
    name = call_id("0-0", 2)
    trace = trace_id(viewer.index.run.run_id, "0-0")
    for path, target in {
        f"/rollout/0-0/call/{name}": "/rollout/0-0/call/2/",
        f"/rollout/0-0/call/{span_id(name)}": "/rollout/0-0/call/2/",
        f"/trace/{trace}": "/rollout/0-0/",
        f"/trace/{trace}?uiFind={span_id(name)}": "/rollout/0-0/call/2/",
        "/rollout/0-0": "/rollout/0-0/",
        "/rollout/0-0/call/2": "/rollout/0-0/call/2/",
    }.items():
        answer = viewer.client.get(path)
        assert answer.status_code in (307, 308), path
        assert answer.headers["location"] == target


def test_a_span_in_a_callers_trace_leads_to_its_call(tmp_path: Path, view: View) -> None:
    """An address made for Jaeger's UI works for calls that are part of a caller's trace too."""
    directory = write_run(tmp_path / "run")
    foreign = "0af7651916cd43dd8448eb211c80319c"
    for rollout_id in ("0-0", "0-1"):
        records = conversation(rollout_id, 2)
        records[1]["trace"] = {"trace_id": foreign, "parent_span_id": "b7ad6b7169203331"}
        append(directory, rollout_id, records)
    viewer = view(directory)
    span = viewer.json("/rollout/0-1.json")["calls"][1]["span_id"]
    for query, place in (("", "/rollout/0-0/"), (f"?uiFind={span}", "/rollout/0-1/call/1/")):
        answer = viewer.client.get(f"/trace/{foreign}{query}")
        assert (answer.status_code, answer.headers["location"]) == (307, place)
    assert viewer.client.get(f"/trace/{foreign[::-1]}").status_code == 404


def test_of_many_attempts_those_around_this_one_are_shown(tmp_path: Path, view: View) -> None:
    """The page of attempt 100 of 130 has itself, the ones before and after it, and how many there are."""
    directory = write_run(tmp_path / "run")
    for attempt in range(130):
        name = f"0-0-a{attempt}" if attempt else "0-0"
        append(directory, name, conversation(name, 1, start=2.0 * attempt))
    viewer = view(directory)
    found = viewer.json("/rollout/0-0-a100.json")
    numbers = [one["attempt"] for one in found["attempts"]]
    assert numbers == list(range(76, 126))
    assert found["attempts_total"] == 130
    assert "<small>50 of 130</small>" in viewer.page("/rollout/0-0-a100/")
    first = viewer.json("/rollout/0-0.json")["attempts"]
    assert [one["attempt"] for one in first] == list(range(26))


def test_a_directory_of_any_name_can_be_viewed(tmp_path: Path, view: View) -> None:
    """Bytes in the directory's name that are no UTF-8 are shown as escapes."""
    directory = write_run(Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xff<b>")))
    append(directory, "0-0", conversation("0-0", 1))
    viewer = view(directory)
    assert viewer.json("/run.json")["directory"].endswith("/r\\xff<b>")
    assert "&lt;b&gt;" in viewer.page("/")


def test_an_index_that_fails_is_made_anew(run_dir: Path, view: View) -> None:
    """Damage to the index while the viewer runs costs one look; the pages say so, then show everything again, also when it happens once more."""
    viewer = view(run_dir)
    before = counted("store.failures")
    for number in range(12):
        path = viewer.index.database.path
        if path is None:
            break  # after the second time it stays in memory; a write in between may have mended it
        with path.open("r+b") as file:
            file.write(b"damage" * 5000)
        for log in path.parent.glob("*-wal"):
            log.write_bytes(b"")
        append(run_dir, "0-0", conversation("0-0", 1))
        name = f"9-{number}"
        append(run_dir, name, conversation(name, 1))
        deadline = time.monotonic() + 20
        while (answer := viewer.client.get(f"/rollout/{name}.json")).status_code != 200:
            assert answer.status_code == 503, answer.text
            assert "made anew" in answer.json()["error"]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert answer.json()["rollout"]["calls"] == 1
    assert viewer.index.database.in_memory
    assert counted("store.failures") >= before + 2


def test_a_rollout_called_like_a_twin_has_its_own_page(tmp_path: Path, view: View) -> None:
    """`a` and `a.json` can both be rollouts: pages end in a slash, twins in `.json`."""
    directory = write_run(tmp_path / "run")
    append(directory, "a", conversation("a", 1))
    append(directory, "a.json", conversation("a.json", 2))
    viewer = view(directory)
    assert viewer.json("/rollout/a.json")["rollout"]["calls"] == 1
    assert viewer.json("/rollout/a.json.json")["rollout"]["calls"] == 2
    assert "2 calls" not in viewer.page("/rollout/a.json/")


def test_pages_follow_the_files(run_dir: Path, view: View) -> None:
    """A call that is recorded while the viewer runs is on the pages, and the version that pages poll has changed."""
    viewer = view(run_dir)
    before = viewer.json("/live.json", rollout="0-1")["version"]
    run_before = viewer.json("/live.json")["version"]
    assert viewer.json("/live.json", rollout="0-1")["version"] == before
    append(run_dir, "0-1", conversation("0-1", 4, start=2.0)[3:])
    assert viewer.json("/live.json", rollout="0-1")["version"] != before
    assert len(viewer.json("/rollout/0-1.json")["calls"]) == 4
    assert viewer.json("/live.json")["version"] != run_before
    assert viewer.json("/run.json")["totals"]["calls"] == 16


def test_rollouts_without_calls_and_directories_without_rollouts_have_pages(
    tmp_path: Path, view: View
) -> None:
    """Nothing recorded yet is a page that says so."""
    directory = tmp_path / "empty"
    directory.mkdir()
    viewer = view(directory)
    assert "No captures here yet" in viewer.page("/")
    assert "no run.json" in viewer.page("/")
    write_rollout(directory, "2-0", error="the agent crashed", error_type="Crash")
    page = viewer.page("/rollout/2-0/")
    assert "the agent crashed" in page
    assert "No model call" in page


def test_odd_records_have_pages(tmp_path: Path, view: View) -> None:
    """Records of other producers, with wrong types, no times or bodies that are no objects, are shown as far as they go."""
    directory = write_run(tmp_path / "run")
    whole = chat_call("6-0", 0, [{"role": "user", "content": "hi"}], {"content": "ho"})
    odd = [
        {"model_call_id": "m"},
        {**whole, "dialect": 7, "started_at": "yesterday", "latency_ms": [], "error_category": {}},
        {**whole, "request": None, "request_raw": "not json", "response": None},
        {**whole, "request": {"messages": [None, 3, "text", {"content": {"a": 1}}], "tools": "x"}},
        {**whole, "response": {"choices": [None, {"message": {"tool_calls": [None, {}]}}]}},
        {**whole, "sampling": {"pinned": "temperature", "effective": 3}, "model_ref": "x"},
        {**whole, "started_at": EPOCH + 5, "completed_at": EPOCH - 5},
        {**whole, "response": {"usage": {"prompt_tokens": 2**70}}, "started_at": 1e300},
    ]
    append(directory, "6-0", odd)
    viewer = view(directory)
    data = viewer.json("/rollout/6-0.json")
    assert len(data["calls"]) == len(odd)
    viewer.page("/rollout/6-0/")
    for number in range(len(odd)):
        viewer.json(f"/rollout/6-0/call/{number}.json")
        viewer.page(f"/rollout/6-0/call/{number}/")
    viewer.json("/compare.json", a="6-0", b="6-0")


def test_long_texts_are_cut_on_the_page_and_whole_behind_it(tmp_path: Path, view: View) -> None:
    """A message of a megabyte does not make a page of a megabyte; the rest is one request away."""
    directory = write_run(tmp_path / "run")
    long = "0123456789" * 100_000
    append(
        directory,
        "6-1",
        [chat_call("6-1", 0, [{"role": "user", "content": long}], {"content": "ok"})],
    )
    viewer = view(directory)
    page = viewer.page("/rollout/6-1/call/0/")
    assert len(page) < 60_000
    assert "part/request/0/0.txt" in page
    assert viewer.client.get("/rollout/6-1/call/0/part/request/0/0.txt").text == long
    for path in ("part/request/1/0.txt", "part/request/0/1.txt", "part/other/0/0.txt"):
        assert viewer.client.get(f"/rollout/6-1/call/0/{path}").status_code == 404


def test_a_packed_rollout_has_the_same_pages(run_dir: Path, view: View) -> None:
    """Packing a rollout's file changes nothing on its pages."""
    before = view(run_dir).json("/rollout/0-0/call/3.json")
    assert pack_rollout(CaptureStore(run_dir), "0-0", idle_s=0).state == "packed"
    assert not (run_dir / "0-0.capture.jsonl").exists()
    assert view(run_dir).json("/rollout/0-0/call/3.json") == before


def test_json_twins_are_what_their_pages_are_made_of(run_dir: Path, view: View) -> None:
    """Each page names its twin, and every figure of the twin's calls is on the page."""
    viewer = view(run_dir)
    for path, twin in {
        "/": "/run.json",
        "/rollout/0-0/": "/rollout/0-0.json",
        "/rollout/0-0/call/1/": "/rollout/0-0/call/1.json",
        "/compare?a=0-0&b=0-1": "/compare.json?a=0-0&b=0-1",
    }.items():
        page = viewer.page(path)
        assert f'href="{twin.replace("&", "&amp;")}"' in page
        assert isinstance(json.loads(viewer.client.get(twin).content), dict)
