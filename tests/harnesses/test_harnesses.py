"""Codex CLI and Claude Code, unmodified, started by the harness example: captured, attached and traced.

They run with dummy keys and telemetry off, and a proxy that leads nowhere for everything but loopback.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym.cli.main import run
from otel_gym.correlation.run import read_run
from otel_gym.correlation.trace_ids import root_span_id, span_id, trace_id
from otel_gym.rollouts import ATTACHMENT_KEY, CollectOptions, collect_rollouts
from tests.engines.serving import Served
from tests.examples.test_examples import example, model_server
from tests.harnesses.harness_engine import LAST, HarnessEngine
from tests.harnesses.npm import CLAUDE_CODE, CODEX, NpmPackage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "IS_SANDBOX": "1",
    "HTTP_PROXY": "http://127.0.0.1:1",
    "HTTPS_PROXY": "http://127.0.0.1:1",
    "NO_PROXY": "127.0.0.1",
}
CODEX_FLAGS = [
    "exec",
    "--skip-git-repo-check",
    "--dangerously-bypass-approvals-and-sandbox",
    "-c",
    'model="policy"',
    "-c",
    "analytics.enabled=false",
    "-c",
    "check_for_update_on_startup=false",
]
OWN_PROVIDER = (
    'model_providers.gym={name="gym",base_url="{openai_base_url}",'
    'wire_api="responses",env_key="OPENAI_API_KEY"}'
)
HARNESSES: dict[str, tuple[NpmPackage, list[str], str]] = {
    "codex": (CODEX, [*CODEX_FLAGS, "-c", 'openai_base_url="{openai_base_url}"'], "responses"),
    "codex-provider": (
        CODEX,
        [*CODEX_FLAGS, "-c", 'model_provider="gym"', "-c", OWN_PROVIDER],
        "responses",
    ),
    "claude-code": (CLAUDE_CODE, ["--allowedTools", "Bash", "-p"], "messages"),
}


@pytest.mark.parametrize("name", HARNESSES)
async def test_an_unmodified_harness(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rollouts at once: the harness runs the tool that the engine asks for, and each rollout has its own two calls, attachment and trace."""
    package, flags, dialect = HARNESSES[name]
    command = [str(package.installed()), *flags, "{prompt}"]
    harness = {"command": command, "environment": QUIET, "timeout_s": 120}
    block = {"responses_api_agents": {"harness": harness}}
    engine = HarnessEngine()
    directory = tmp_path / "captures"
    options: dict[str, Any] = {"output": tmp_path / "out.jsonl", "num_repeats": 2}
    with model_server(directory, engine, coder=block) as settings:
        agent = example("harness_agent").HarnessAgent(settings)
        with Served(agent) as served:
            task = {"prompt": "Run the tool, then stop."}
            collected = await collect_rollouts(
                settings, [task], CollectOptions(agent_url=served.url, **options)
            )
    assert collected.whole, collected.failures.read_text()
    rows = [orjson.loads(line) for line in collected.output.read_bytes().splitlines()]
    assert {row[ATTACHMENT_KEY]["rollout_id"] for row in rows} == {"0-0", "0-1"}
    for row in rows:
        assert row["exit_code"] == 0 and LAST in row["stdout"], row
        _is_whole(row[ATTACHMENT_KEY], dialect)
    assert _tool_results(engine) == 2
    _is_traced(directory, rows, tmp_path / "spans.otlp.jsonl")
    capsys.readouterr()


def _is_whole(attachment: dict[str, Any], dialect: str) -> None:
    asked, ended = attachment["calls"]
    assert "gaps" not in attachment
    for call in (asked, ended):
        assert (call["dialect"], call["error_category"]) == (dialect, None)
        assert (call["streamed"], call["stream_terminal"]) == (True, "complete")
        assert call["client_session_id"] == asked["client_session_id"] is not None
        assert (call["tokens_in"], call["cached_tokens"]) == (1200, 1000)
    assert len(asked["tool_calls"]) == 1 and ended["tool_calls"] == []
    assert attachment["metrics"]["num_calls"] == 2


def _tool_results(engine: HarnessEngine) -> int:
    """How many requests carry the output of the tool that the engine asked for."""
    return sum(b"done-by-the-tool" in _last_item(request) for _, request in engine.requests)


def _last_item(request: dict[str, Any]) -> bytes:
    items = request.get("input") or request["messages"]
    return orjson.dumps(items[-1])


def _is_traced(directory: Path, rows: list[dict[str, Any]], spans_file: Path) -> None:
    """Each rollout is one trace: its root, and below that a span for each call."""
    assert run(["export", str(directory), "--out", str(spans_file)]) == 0
    spans = [
        span
        for line in spans_file.read_bytes().splitlines()
        for resource in orjson.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    found = read_run(directory)
    assert found is not None
    for row in rows:
        attachment = row[ATTACHMENT_KEY]
        rollout_id = attachment["rollout_id"]
        trace = trace_id(found.run_id, rollout_id)
        root = root_span_id(found.run_id, rollout_id)
        parents = {
            one["spanId"]: one.get("parentSpanId", "") for one in spans if one["traceId"] == trace
        }
        calls = {span_id(call["model_call_id"]): root for call in attachment["calls"]}
        assert parents == {root: "", **calls}
