"""Helper by helper, generated input: nemo-gym 0.7.0's own answer beside ours, and each side's files read by the other.

Runs where OTEL_GYM_REFERENCE_PYTHON names the Python of an environment with nemo-gym; that package is too large to be part of every run. What may differ is
in the tests below, each with its reason, and in docs/nemo-gym.md.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.requests import Request

from otel_gym.capture.metrics import aggregate_model_call_records
from otel_gym.capture.record import build_model_call_record
from otel_gym.capture.store import CaptureStore
from otel_gym.correlation.prefix import apply_rollout_prefix, rollout_path_prefix
from otel_gym.correlation.rollout_id import is_valid, rollout_id_from_run_body
from otel_gym.errors import InvalidRolloutId
from otel_gym.rollouts import ATTACHMENT_KEY, attach_model_calls
from otel_gym.servers.agent import SimpleResponsesAPIAgent
from otel_gym.settings import settings_from
from tests.rollouts.reference_lines import raw_line

SCRIPT = Path(__file__).with_name("reference_answers.py")
Ask = Callable[..., Any]


class Refused(Exception):
    """Nemo-gym raised."""


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Asks nemo-gym; raises `Refused` where it raises."""
    python = os.environ.get("OTEL_GYM_REFERENCE_PYTHON")
    if not python:
        pytest.skip("OTEL_GYM_REFERENCE_PYTHON names no Python with nemo-gym")
    with subprocess.Popen(
        [python, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        source, sink = process.stdout, process.stdin

        def question(function: str, *arguments: Any) -> Any:
            sink.write(json.dumps([function, arguments]).encode() + b"\n")
            sink.flush()
            answer = json.loads(source.readline())
            if "error" in answer:
                raise Refused(answer["error"])
            return answer["value"]

        yield question
        sink.close()


INDICES = (None, 0, 1, 7, "3", "003", "x", " 1", "+1", -1, 1.0, 2.5, True, "../x", "é", "", [1], {})
IDS = (
    *("a", "7-2", "blue.1", "x_y-1", "7-2-a1", "-x", ".hid", "..", "a/b", "", "abc\n", "a%2Fb"),
    *("a" * 200, "a" * 201, "a.capture", "A.CAPTURE.JSONL", "a.rollout.json", 5, True, ["a"]),
)
ATTEMPTS = (None, 0, 1, 2, "1", "0", 2.0, 0.0, " 3 ", "x", "", -1, 1.9, True, False)
BASES = ("http://h:1", "http://h:1/", "", "/", "http://h:1/base//", "https://[::1]:8/x")


def _bodies() -> Iterator[dict[str, Any]]:
    chance = random.Random(7)
    for _ in range(3000):
        body: dict[str, Any] = {}
        for key, values, share in (
            ("_ng_task_index", INDICES, 0.9),
            ("_ng_rollout_index", INDICES, 0.9),
            ("_ng_attempt_index", ATTEMPTS, 0.4),
            ("_ng_rollout_id", IDS, 0.3),
        ):
            if chance.random() < share:
                body[key] = chance.choice(values)
        yield body


def _may_be_refused(body: dict[str, Any], reference: str) -> bool:
    """Ours refuses ids that are no file name and URL segment, and attempts that only `int()` makes whole numbers of."""
    attempt = body.get("_ng_attempt_index")
    is_odd = isinstance(attempt, bool) or (attempt not in (None, "") and float(attempt) < 0)
    is_odd = is_odd or (isinstance(attempt, float) and not attempt.is_integer())
    explicit = body.get("_ng_rollout_id")
    return is_odd or not is_valid(reference) or (explicit is not None and not is_valid(explicit))


def test_ids_of_run_bodies(ask: Ask) -> None:
    """The id of each body is the reference's, or refused for a reason; what the reference refuses is refused."""
    refused = 0
    for body in _bodies():
        try:
            expected = ask("id", body)
        except Refused:
            with pytest.raises(InvalidRolloutId):
                rollout_id_from_run_body(body)
            continue
        try:
            assert rollout_id_from_run_body(body) == expected
        except InvalidRolloutId:
            assert _may_be_refused(body, expected), body
            refused += 1
    assert refused
    for other in (None, [], "x", 5):
        assert rollout_id_from_run_body(other) == ask("id", other)


def test_prefixes(ask: Ask) -> None:
    """Path prefixes and prefixed base URLs are the reference's wherever the id is one."""
    for rollout_id, tokens in itertools.product((None, *IDS), (True, False)):
        if rollout_id and not (isinstance(rollout_id, str) and is_valid(rollout_id)):
            with pytest.raises(InvalidRolloutId):
                rollout_path_prefix(rollout_id, token_capture=tokens)  # type: ignore[arg-type]
            continue
        expected = ask("prefix", rollout_id, tokens)
        assert rollout_path_prefix(rollout_id, token_capture=tokens) == expected  # type: ignore[arg-type]
        for base in BASES:
            expected = ask("apply", base, rollout_id, tokens)
            assert apply_rollout_prefix(base, rollout_id, token_capture=tokens) == expected  # type: ignore[arg-type]


def _agent(on: bool, tokens: bool, more: dict[str, Any] | None = None) -> SimpleResponsesAPIAgent:
    raw = {**(more or {}), "observability_enabled": on, "model_call_capture_dir": "/captures"}
    agent = SimpleResponsesAPIAgent(settings_from(raw))
    agent.token_capture = tokens
    return agent


def test_helpers_over_run_bodies(ask: Ask) -> None:
    """`rollout_id_from_run`, `url_path_for_run` and `base_url_for_run` give the reference's values, on and off, with and without token capture."""
    chance = random.Random(8)
    agents = {key: _agent(*key) for key in itertools.product((True, False), (True, False))}
    for body in itertools.islice(_bodies(), 1000):
        key = chance.choice(list(agents))
        base, path = chance.choice(BASES), chance.choice(("/v1/responses", "/v1/messages?x=1", ""))
        agent = agents[key]
        try:
            expected = ask("run", *key, base, path, body)
        except Refused:
            with pytest.raises(InvalidRolloutId):
                agent.url_path_for_run(path, body)
            continue
        try:
            assert agent.rollout_id_from_run(body) == expected[0]
        except InvalidRolloutId:
            assert _may_be_refused(body, expected[0])
            continue
        assert agent.url_path_for_run(path, body) == expected[1]
        assert agent.base_url_for_run(base, body) == expected[2]


def test_helper_over_requests(ask: Ask) -> None:
    """`url_path_for_request` gives the reference's path for every request that an agent's routes let through, and for none."""
    agent = _agent(False, False)
    tokens = "/training-token-capture"
    arrivals = [
        None,
        {"path": "/v1/responses"},
        {"path": "/v1/responses", "path_params": {}},
        {"path": "/run", "path_params": {"other": 1}},
    ]
    for rollout_id in ("7-2", "7-2-a1", "blue.1"):
        for prefix in ("", "/mount"):
            for path in ("/v1/responses", f"{tokens}/v1/responses"):
                full = f"{prefix}/ng-rollout/{rollout_id}{path}"
                arrivals.append({"path": full, "path_params": {"rollout_id": rollout_id}})
    for arrival in arrivals:
        scope = arrival and {"type": "http", "method": "POST", "server": ("h", 80), **arrival}
        request = None if scope is None else Request({**scope, "headers": [], "query_string": b""})
        for path in ("/v1/responses", "/v1/chat/completions?x=1", ""):
            assert agent.url_path_for_request(path, request) == ask("request", path, scope)


def test_model_base_urls(ask: Ask) -> None:
    """`resolve_model_base_url` gives the reference's URL of every model server; a wildcard address, which nobody can call, becomes loopback."""
    servers = {
        name: {"responses_api_models": {"vllm_model": {"host": host, "port": 8000 + number}}}
        for number, (name, host) in enumerate(
            {"local": "127.0.0.1", "wild": "0.0.0.0", "far": "node-7.example"}.items()
        )
    }
    for name, rollout_id, tokens in itertools.product(servers, (None, "7-2", "b"), (True, False)):
        expected = ask("resolve", servers, name, rollout_id, tokens)
        ours = _agent(True, tokens, servers).resolve_model_base_url(name, rollout_id)
        assert ours == expected.replace("0.0.0.0", "127.0.0.1")


def same_call(ours: dict[str, Any], reference: dict[str, Any], response: Any) -> None:
    """Compares the reference's fields, but for what docs/nemo-gym.md names."""
    answer = response if isinstance(response, dict) else {}
    usage = answer.get("usage") or {}
    known = {key: ours[key] for key in reference}
    known["tool_calls"] = [
        {key: tool[key] for key in ("call_id", "name", "arguments")} for tool in known["tool_calls"]
    ]
    if reference["finish_reason"] is None and answer.get("status") == known["finish_reason"]:
        known["finish_reason"] = None  # a final status of a Responses call
    if "choices" in answer and "cache_read_input_tokens" in usage:
        for key in ("tokens_in", "tokens_total"):  # which the reference counts twice
            known[key] = reference[key]
    assert known == reference


def test_derived_records(ask: Ask) -> None:
    """Of generated lines in the shapes of the providers, every field that the reference derives has its value in ours, and so have the sums."""
    chance = random.Random(9)
    lines = [raw_line(chance) for _ in range(1500)]
    for raw in lines:
        ours = build_model_call_record(raw, 3).model_dump(mode="json")
        same_call(ours, ask("record", raw), raw["response"])
    plain = [one for one in lines if "cache_read_input_tokens" not in _usage(one)]
    for _ in range(100):
        chosen = chance.sample(plain, chance.randrange(6))
        records = [build_model_call_record(raw, number) for number, raw in enumerate(chosen)]
        expected = ask("aggregate", chosen)
        ours = aggregate_model_call_records(records)
        assert {key: ours[key] for key in expected} == pytest.approx(expected)


def _usage(raw: dict[str, Any]) -> dict[str, Any]:
    return (raw["response"] or {}).get("usage") or {}


def test_lines_that_the_reference_cannot_read(tmp_path: Path, ask: Ask) -> None:
    """Both count the same lines of a file as damaged, number the others alike, and name the same gaps in the same order."""
    store = CaptureStore(tmp_path)
    chance = random.Random(10)
    good = [raw_line(chance) for _ in range(6)]
    damage = [b'{"model_call_id": "x', b"[1]", b"\xff\xfe", b"5"]
    files = {
        "whole": [orjson.dumps(raw) for raw in good],
        "damaged": [orjson.dumps(good[0]), damage[0], b"", orjson.dumps(good[1]), *damage[1:]],
        "nothing": damage,
        "typed": [orjson.dumps({**good[0], "status_code": "x"}), orjson.dumps(good[1])],
        "empty": [],
    }
    for name, lines in files.items():
        store.path_for(name).write_bytes(b"".join(line + b"\n" for line in lines))
    rows = [{"_ng_rollout_id": name, "reward": 1.0} for name in [*files, "absent"]]
    for name in ("whole", "damaged", "empty", "marked"):
        for marked in (False, True):
            if marked:
                store.mark_incomplete(name)
            rows.append({"_ng_rollout_id": name, "marked": marked})
    for row in rows:
        if row.get("marked") is False:
            store.incomplete_path_for(str(row["_ng_rollout_id"])).unlink(missing_ok=True)
        if row.get("marked") is True:
            store.mark_incomplete(str(row["_ng_rollout_id"]))
        expected = ask("merge", row, str(tmp_path))[ATTACHMENT_KEY]
        assert attach_model_calls(row, store)
        ours = row[ATTACHMENT_KEY]
        assert ours.get("gaps") == expected.get("gaps"), row
        assert [one["call_index"] for one in ours["calls"]] == [
            one["call_index"] for one in expected["calls"]
        ]
