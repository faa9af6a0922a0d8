"""`otel-gym export-atif`: trajectories that Harbor's own models accept, and strictness about gaps."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from otel_gym.cli.main import run
from tests.replay.other_python import environment
from tests.replay.samples import BUNDLE, call, hosted, message, reasoning, response

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
EXPERTS = [[[1, 2]], [[3, 4]]]


def row(*output: dict[str, Any], task: int = 0, **more: Any) -> dict[str, Any]:
    """A result row as a rollouts file has it."""
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": 0,
        "agent_ref": {"type": "responses_api_agents", "name": "simple_agent"},
        "responses_create_params": {
            "instructions": "be kind",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
            "tools": [TOOL],
        },
        "response": response(*output),
        "reward": 1.0,
    } | more


def tool_output(call_id: str, output: Any = "4") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


WHOLE = row(
    reasoning(),
    call(**BUNDLE, routed_experts=EXPERTS),
    tool_output("call_1"),
    hosted(),
    message("four", **BUNDLE),
)
GAPPED = row(
    message("x", prompt_token_ids=[1]),
    task=1,
    ng_model_call_capture={"gaps": [{"code": "model_call_capture_incomplete"}]},
)


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return str(path)


def test_a_rollout_is_a_trajectory(tmp_path: Path) -> None:
    """Instructions, input, calls with their outputs and arrays, and answers are steps, in order."""
    source = write(tmp_path / "r.jsonl", WHOLE)
    assert run(["export-atif", source, str(tmp_path / "out"), "--strict"]) == 0
    made = json.loads((tmp_path / "out" / "0-0.json").read_text())
    assert made["trajectory_id"] == "0-0"
    assert made["agent"]["name"] == "simple_agent"
    assert made["agent"]["tool_definitions"] == [TOOL]
    system, user, acting, answering = made["steps"]
    assert (system["source"], system["message"]) == ("system", "be kind")
    assert (user["source"], user["message"]) == ("user", "hi")
    assert acting["reasoning_content"] == "because"
    assert acting["tool_calls"] == [
        {"tool_call_id": "call_1", "function_name": "look", "arguments": {"x": 1}}
    ]
    assert acting["observation"] == {"results": [{"content": "4", "source_call_id": "call_1"}]}
    assert acting["metrics"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "prompt_token_ids": BUNDLE["prompt_token_ids"],
        "completion_token_ids": BUNDLE["generation_token_ids"],
        "logprobs": BUNDLE["generation_log_probs"],
        "extra": {"routed_experts": EXPERTS},
    }
    assert answering["message"] == "four"
    assert answering["extra"] == {"hosted_items": [hosted()]}
    assert made["final_metrics"] == {
        "total_steps": 4,
        "total_prompt_tokens": 3,
        "total_completion_tokens": 2,
    }
    assert made["extra"] == {"rollout_id": "0-0", "reward": 1.0, "gaps": []}


def test_each_bundle_ends_a_call(tmp_path: Path) -> None:
    """Calls without a tool output between them are told apart by their arrays; what follows joins the last."""
    source = write(
        tmp_path / "r.jsonl",
        row(message("a", **BUNDLE), reasoning(), message("b", **BUNDLE), message("c")),
    )
    assert run(["export-atif", source, str(tmp_path / "o.jsonl")]) == 0
    (made,) = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [step["message"] for step in made["steps"][2:]] == ["a", "bc"]


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        "[1]",
        "7",
        '{"a":NaN}',
        '{"a":1e400}',
        '{"a":' + "[" * 196 + "]" * 196 + "}",
        "\ud800",
    ],
)
def test_whatever_a_model_wrote_as_arguments_is_exported(arguments: str, tmp_path: Path) -> None:
    """Arguments that are no JSON object, or that the file could not hold, are kept as their text."""
    out = tmp_path / "out.jsonl"
    assert run(["export-atif", write(tmp_path / "r.jsonl", row(call(arguments))), str(out)]) == 0
    (step,) = [step for step in json.loads(out.read_text())["steps"] if "tool_calls" in step]
    (made,) = step["tool_calls"]
    assert (made["arguments"], made["extra"]) == ({}, {"raw_arguments": arguments})


def test_strict_refuses_gaps_and_prints_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --strict a trajectory with any gap is not written, its codes are printed, and the exit code is 1."""
    public = row(message("y"), task=2)
    public["responses_create_params"]["input"].insert(
        0, {"role": "assistant", "content": "like so"}
    )
    unanswered = row({"type": "computer_call", "call_id": "c"}, task=3)
    source = write(tmp_path / "r.jsonl", WHOLE, GAPPED, public, unanswered)
    out = tmp_path / "out"
    assert run(["export-atif", source, str(out), "--strict"]) == 1
    captured = capsys.readouterr()
    assert [path.name for path in out.iterdir()] == ["0-0.json"]
    for told in (
        "1-0: foreign_turn_projected_portable",
        "1-0: model_call_capture_incomplete",
        "2-0: public_assistant_metadata_unavailable",
        "3-0: non_trainable_terminal_output",
    ):
        assert told in captured.err
    assert run(["export-atif", source, str(out), "--json"]) == 0
    told_json = json.loads(capsys.readouterr().out)
    assert told_json["written"] == 4
    assert {gap["trajectory"] for gap in told_json["gaps"]} == {"1-0", "2-0", "3-0"}
    made = json.loads((out / "2-0.json").read_text())
    assert made["steps"][1]["is_copied_context"] is True


def test_rows_of_one_rollout_keep_apart(tmp_path: Path) -> None:
    """Two rows of one rollout are two files, and a row without indices has its line's name."""
    nameless = {key: value for key, value in WHOLE.items() if not key.startswith("_ng")}
    source = write(tmp_path / "r.jsonl", WHOLE, WHOLE, nameless)
    assert run(["export-atif", source, str(tmp_path / "out")]) == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["0-0.2.json", "0-0.json", "line-3.json"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "line 1: not JSON"),
        ("[]", "line 1: want a rollout's result object"),
        ("\n{}", "line 2: response.output: want a list"),
        ('{"response": {"output": [1]}}', "line 1: response.output[0]: want an object"),
        ('{"response": {"output": []}}', "neither input nor output"),
        ('{"_ng_rollout_id": "../x", "response": {"output": []}}', "line 1: Invalid rollout id"),
    ],
)
def test_unusable_rows_exit_with_2(
    content: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row that is no rollout is one line on stderr that names its line."""
    (tmp_path / "r.jsonl").write_text(content)
    assert run(["export-atif", str(tmp_path / "r.jsonl"), str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_unusable_paths_exit_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file and an output that can't be made are named."""
    assert run(["export-atif", str(tmp_path / "absent"), str(tmp_path / "o.jsonl")]) == 2
    source = write(tmp_path / "r.jsonl", WHOLE)
    assert run(["export-atif", source, source + "/out"]) == 2
    assert run(["export-atif", source, str(tmp_path / "no" / "o.jsonl")]) == 2
    assert capsys.readouterr().err.count("\n") == 3


VALIDATE = """
import sys
from pathlib import Path
from harbor.models.trajectories import Trajectory

for path in sorted(Path(sys.argv[1]).iterdir()):
    trajectory = Trajectory.model_validate_json(path.read_text())
    print(trajectory.trajectory_id, len(trajectory.steps))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_harbors_own_models_accept_them(tmp_path: Path) -> None:
    """Harbor validates every trajectory: whole, gapped, multimodal, copied, with odd calls and outputs."""
    odd = row(
        call("not json", call_id="c1"),
        call("[1]", call_id="c2", **BUNDLE),
        tool_output("c2", [{"type": "input_text", "text": "t"}, {"type": "input_image", "image_url": "u"}]),
        tool_output("nobody"),
        message(content=[{"type": "refusal", "refusal": "no"}]),
        {"type": "computer_call", "call_id": "c"},
        task=2,
    )  # fmt: skip
    odd["responses_create_params"]["input"] = [
        tool_output("first"),
        {"role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]},
        {"role": "assistant", "content": "like so"},
        call(call_id="c0"),
        tool_output("c0"),
    ]
    plain = row(message("y"), task=3)
    plain["responses_create_params"] = {"input": "hi"}
    del plain["agent_ref"]
    source = write(tmp_path / "r.jsonl", WHOLE, GAPPED, odd, plain)
    assert run(["export-atif", source, str(tmp_path / "out")]) == 0
    shown = subprocess.run(
        [str(environment("harbor")), "-c", VALIDATE, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert shown.stdout.split("\n")[:-1] == ["0-0 4", "1-0 3", "2-0 7", "3-0 2"]
