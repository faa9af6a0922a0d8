"""A rollout's result row as a trajectory of Harbor's Agent Trajectory Interchange Format (ATIF v1.7).

A row is one line of a rollouts file of ours or of NeMo Gym: `responses_create_params` is what the agent
began with, `response.output` what its model calls and tools gave, in order. Items up to a tool's output
are one step of the agent; where several of them carry a bundle, each bundle ends a step, because a model
call's arrays are on its last item.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_gym.replay.capture import capture_turn
from otel_gym.replay.columns import ARRAY_FIELDS
from otel_gym.replay.errors import CaptureError
from otel_gym.replay.gaps import FOREIGN_TURN, NON_TRAINABLE_OUTPUT, PUBLIC_ASSISTANT
from otel_gym.replay.json_values import JsonValue, dump_json, load_json
from otel_gym.replay.parts import HostedPart, ToolCallPart
from otel_gym.replay.turn import Turn

SCHEMA_VERSION: Final = "ATIF-v1.7"

_UNKNOWN: Final = "unknown"
_GAP_HOLDERS: Final = ("ng_model_call_capture", "ng_trajectory")


@dataclass(slots=True)
class Trajectory:
    """An exported trajectory: its JSON value, and the gap codes that a strict export refuses."""

    value: dict[str, Any]
    gaps: frozenset[str]


@dataclass(slots=True)
class _Steps:
    """The steps so far, and which of them holds each call."""

    values: list[dict[str, Any]] = field(default_factory=list)
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    gaps: set[str] = field(default_factory=set)

    def add(self, source: str, message: str, **more: Any) -> dict[str, Any]:
        step = {"step_id": len(self.values) + 1, "source": source, "message": message}
        step |= {name: value for name, value in more.items() if value not in (None, [], {})}
        self.values.append(step)
        return step


def trajectory_of(row: Mapping[str, Any], rollout_id: str) -> Trajectory:
    """The trajectory of a row. Raises `CaptureError` naming the field of a row that is none."""
    response = row.get("response")
    if not isinstance(response, Mapping) or not isinstance(response.get("output"), list):
        raise CaptureError("response.output: want a list of items")
    steps = _Steps()
    parameters = row.get("responses_create_params")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    _add_input(steps, parameters)
    model = response.get("model")
    _add_output(steps, response["output"], model if isinstance(model, str) else None)
    if not steps.values:
        raise CaptureError("response.output: the rollout has neither input nor output")
    gaps = frozenset(steps.gaps | _recorded_gaps(row))
    agent = row.get("agent_ref")
    name = agent.get("name") if isinstance(agent, Mapping) else None
    tools = parameters.get("tools")
    value = {
        "schema_version": SCHEMA_VERSION,
        "session_id": rollout_id,
        "trajectory_id": rollout_id,
        "agent": {
            "name": name if isinstance(name, str) and name else _UNKNOWN,
            "version": _UNKNOWN,
            **({"model_name": model} if isinstance(model, str) else {}),
            **({"tool_definitions": tools} if _objects(tools) else {}),
        },
        "steps": steps.values,
        "final_metrics": _final_metrics(response.get("usage"), len(steps.values)),
        "extra": {
            "rollout_id": rollout_id,
            "reward": row.get("reward"),
            "gaps": sorted(gaps),
        },
    }
    return Trajectory(value, gaps)


def _add_input(steps: _Steps, parameters: Mapping[str, Any]) -> None:
    instructions = parameters.get("instructions")
    if isinstance(instructions, str) and instructions:
        steps.add("system", instructions)
    given = parameters.get("input")
    if isinstance(given, str):
        steps.add("user", given)
        return
    for index, item in enumerate(given if isinstance(given, list) else []):
        if not isinstance(item, Mapping):
            raise CaptureError(f"responses_create_params.input[{index}]: want an object")
        role = item.get("role")
        if item.get("type") == "function_call_output":
            _add_tool_output(steps, item)
        elif role in ("user", "system", "developer"):
            text, extra = _text_of(item.get("content"))
            steps.add("user" if role == "user" else "system", text, extra=extra)
        else:
            steps.gaps.add(PUBLIC_ASSISTANT)
            public = {**item, "type": item.get("type", "message")}
            step = _add_call(steps, [public], None)
            step["is_copied_context"] = True


def _add_output(steps: _Steps, output: list[Any], model: str | None) -> None:
    pending: list[dict[str, Any]] = []
    for index, item in enumerate(output):
        if not isinstance(item, dict):
            raise CaptureError(f"response.output[{index}]: want an object")
        if item.get("type") == "function_call_output":
            _add_calls(steps, pending, model)
            pending = []
            _add_tool_output(steps, item)
        else:
            pending.append(item)
    _add_calls(steps, pending, model)


def _add_calls(steps: _Steps, items: list[dict[str, Any]], model: str | None) -> None:
    """The model calls that gave some items: one, or one for each bundle among them."""
    ends = [number for number, item in enumerate(items, start=1) if _has_arrays(item)]
    if ends:
        ends[-1] = len(items)
    start = 0
    for end in ends or ([len(items)] if items else []):
        _add_call(steps, items[start:end], model)
        start = end


def _add_call(steps: _Steps, items: list[dict[str, Any]], model: str | None) -> dict[str, Any]:
    turn = capture_turn({"output": items}, None)
    if not turn.has_whole_bundles():
        steps.gaps.add(FOREIGN_TURN)
    if turn.unsupported_calls:
        steps.gaps.add(NON_TRAINABLE_OUTPUT)
    calls = [_tool_call(part) for part in turn.parts if isinstance(part, ToolCallPart)]
    extra: dict[str, Any] = {}
    hosted = [
        item for item, part in zip(items, turn.parts, strict=True) if isinstance(part, HostedPart)
    ]
    if hosted:
        extra["hosted_items"] = hosted
    if turn.refusal is not None:
        extra["refusal"] = turn.refusal
    step = steps.add(
        "agent",
        turn.content,
        model_name=model,
        reasoning_content=turn.reasoning or None,
        tool_calls=calls,
        metrics=_metrics(turn, items),
        llm_call_count=1 if model is not None else None,
        extra=extra,
    )
    steps.calls |= {call["tool_call_id"]: step for call in calls}
    return step


def _add_tool_output(steps: _Steps, item: Mapping[str, Any]) -> None:
    text, extra = _text_of(item.get("output"))
    call_id = item.get("call_id")
    step = steps.calls.get(call_id) if isinstance(call_id, str) else None
    result: dict[str, Any] = {"content": text}
    if step is not None:
        result["source_call_id"] = call_id
    else:
        extra = {**extra, "call_id": call_id}
        step = steps.values[-1] if steps.values else steps.add("system", "")
    if extra:
        result["extra"] = extra
    step.setdefault("observation", {"results": []})["results"].append(result)


def _tool_call(part: ToolCallPart) -> dict[str, Any]:
    call = {"tool_call_id": part.id, "function_name": part.name}
    try:
        arguments = load_json(part.arguments)
        dump_json([[[[[[[[arguments]]]]]]]])  # as deep as it will lie in the trajectory
    except ValueError:
        arguments = None
    if isinstance(arguments, dict):
        return call | {"arguments": arguments}
    return call | {"arguments": {}, "extra": {"raw_arguments": part.arguments}}


def _metrics(turn: Turn, items: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The arrays of a call's last bundle; whole and of lists only, so that none is guessed."""
    bundle = next((item for item in reversed(items) if _has_arrays(item)), None)
    if bundle is None or not turn.has_whole_bundles():
        return None
    prompt, generated, log_probs, experts = (bundle.get(name) for name in ARRAY_FIELDS)
    assert isinstance(prompt, list)
    assert isinstance(generated, list)
    metrics: dict[str, Any] = {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(generated),
        "prompt_token_ids": prompt,
        "completion_token_ids": generated,
        "logprobs": log_probs,
    }
    if experts is not None:
        metrics["extra"] = {"routed_experts": experts}
    return metrics


def _has_arrays(item: Mapping[str, Any]) -> bool:
    return any(item.get(name) is not None for name in ARRAY_FIELDS)


def _text_of(content: JsonValue) -> tuple[str, dict[str, Any]]:
    """The text of a message's content; what is not text stays whole in the extra."""
    if isinstance(content, str):
        return content, {}
    blocks = content if isinstance(content, list) else []
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, Mapping) and isinstance(block.get("text"), str)
    ]
    if len(texts) == len(blocks) and content is not None:
        return "".join(texts), {}
    return "".join(texts), {"content": content}


def _recorded_gaps(row: Mapping[str, Any]) -> set[str]:
    """The gap codes that the row itself carries, as objects with a code or as plain codes."""
    lists = [row.get("gaps")]
    lists += [held.get("gaps") for key in _GAP_HOLDERS if isinstance(held := row.get(key), Mapping)]
    found = set()
    for entry in (entry for each in lists if isinstance(each, list) for entry in each):
        code = entry.get("code") if isinstance(entry, Mapping) else entry
        if isinstance(code, str):
            found.add(code)
    return found


def _final_metrics(usage: JsonValue, steps: int) -> dict[str, Any]:
    metrics: dict[str, Any] = {"total_steps": steps}
    if isinstance(usage, Mapping):
        details = usage.get("input_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
        for name, value in (
            ("total_prompt_tokens", usage.get("input_tokens")),
            ("total_completion_tokens", usage.get("output_tokens")),
            ("total_cached_tokens", cached),
        ):
            if type(value) is int and value >= 0:
                metrics[name] = value
    return metrics


def _objects(values: JsonValue) -> bool:
    return isinstance(values, list) and all(isinstance(value, Mapping) for value in values)
