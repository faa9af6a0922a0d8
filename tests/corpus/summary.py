"""A record as the flat summary that `expected.jsonl` holds, so that the two can be compared."""

from __future__ import annotations

import json
from typing import Any

from otel_gym.capture.record import ModelCallRecord
from otel_gym.dialects import DialectName, read_usage
from tests.corpus.exchanges import Recorded


def differences(
    record: ModelCallRecord, exchange: Recorded, *, strictly: bool = False
) -> list[str]:
    """Every figure that the official SDK read differently, as `name: ours != theirs`; empty where all agree.

    Where the SDK's accumulator gave up or skipped chunks, its own reading of the single chunks counts too
    (an id, a finish reason), unless `strictly`; where it saw no terminal event, only the text of the deltas was read.
    """
    expect, dialect = exchange.expect, exchange.dialect
    ours = SUMMARIES[dialect](record.response or {})
    ours["id"] = record.response_id
    ours["model"] = (record.response or {}).get("model")
    if exchange.expected.get("expect_source") == "no terminal event":
        expect = {"text": expect["text_from_deltas"]}
    if "from_item_done_events" in expect:
        expect = {**expect, **expect["from_item_done_events"]}
    found = []
    for name in sorted(set(ours) & set(expect)):
        mine, theirs = _comparable(ours[name]), _comparable(expect[name])
        chunks = None if strictly else exchange.expected.get("chunks")
        if mine != theirs and not _agrees_with_chunks(name, mine, chunks):
            if name == "text" and _flat(mine) == theirs:
                continue
            found.append(f"{name}: {_short(mine)} != {_short(theirs)}")
    if "usage" in expect:
        found += _usage_differences(record, dialect, expect["usage"] or {})
    return found


def _agrees_with_chunks(name: str, mine: Any, chunks: dict[str, Any] | None) -> bool:
    """Whether the SDK's reading of the chunks, one by one, says the same."""
    if chunks is None:
        return False
    if name == "id":
        return mine in chunks["ids"]
    if name == "finish_reasons":
        return bool(
            mine
            == {
                i: c["finish_reasons"][-1]
                for i, c in chunks["choices"].items()
                if c["finish_reasons"]
            }
        )
    return False


def _flat(texts: Any) -> Any:
    """The text of messages whose content came as a list of parts, as the SDK's stream concatenates it."""
    return (
        {
            index: "".join(part.get("text") or "" for part in content)
            if isinstance(content, list)
            else content
            for index, content in texts.items()
        }
        if isinstance(texts, dict)
        else texts
    )


def _usage_differences(
    record: ModelCallRecord, dialect: DialectName, expect: dict[str, Any]
) -> list[str]:
    usage = read_usage(dialect, record.response)
    theirs_input = expect.get("input")
    if dialect == "messages" and theirs_input is not None:
        theirs_input += (expect.get("cached") or 0) + (expect.get("cache_creation") or 0)
    pairs = {
        "input": (record.tokens_in, theirs_input),
        "output": (record.tokens_out, expect.get("output")),
        "total": (usage.provider_total, expect.get("total")),
        "cached": (record.cached_tokens, expect.get("cached")),
        "cache_creation": (record.cache_creation_tokens, expect.get("cache_creation")),
        "reasoning": (record.tokens_reasoning, expect.get("reasoning")),
        "audio_input": (record.tokens_audio_in, expect.get("audio_input")),
        "audio_output": (record.tokens_audio_out, expect.get("audio_output")),
    }
    return [
        f"usage.{name}: {mine} != {theirs}"
        for name, (mine, theirs) in pairs.items()
        if mine != theirs
    ]


def _chat(response: dict[str, Any]) -> dict[str, Any]:
    choices = {
        str(choice.get("index", position)): choice
        for position, choice in enumerate(response.get("choices") or [])
    }
    messages = {index: choice.get("message") or {} for index, choice in choices.items()}
    return {
        "n_choices": len(choices),
        "finish_reasons": {i: choice.get("finish_reason") for i, choice in choices.items()},
        "text": {i: m.get("content") for i, m in messages.items()},
        "reasoning": {
            i: m.get("reasoning_content") or m.get("reasoning")
            for i, m in messages.items()
            if m.get("reasoning_content") or m.get("reasoning")
        },
        "refusal": {i: m["refusal"] for i, m in messages.items() if m.get("refusal")},
        "tool_calls": {
            i: [_chat_call(call) for call in m["tool_calls"]]
            for i, m in messages.items()
            if m.get("tool_calls")
        },
    }


def _chat_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    custom = call.get("custom") or {}
    return {
        "id": call.get("id"),
        "type": call.get("type"),
        "name": function.get("name") or custom.get("name"),
        "arguments": function.get("arguments") or custom.get("input") or "",
    }


def _responses(response: dict[str, Any]) -> dict[str, Any]:
    output = [item for item in response.get("output") or [] if isinstance(item, dict)]
    return {
        "status": response.get("status"),
        "incomplete_reason": (response.get("incomplete_details") or {}).get("reason"),
        "n_output": len(output),
        "item_types": [item.get("type") for item in output],
        "text": "".join(
            part.get("text") or ""
            for item in output
            if item.get("type") == "message"
            for part in item.get("content") or []
            if part.get("type") == "output_text"
        ),
        "tool_calls": [
            {
                "call_id": item.get("call_id"),
                "name": item.get("name"),
                "arguments": item.get("arguments", item.get("input")),
            }
            for item in output
            if item.get("type") in ("function_call", "custom_tool_call")
        ],
        "error": response.get("error"),
        "reasoning": "\n\n".join(
            part.get("text") or ""
            for item in output
            if item.get("type") == "reasoning"
            for part in (item.get("summary") or []) + (item.get("content") or [])
        ),
    }


def _messages(response: dict[str, Any]) -> dict[str, Any]:
    blocks = [block for block in response.get("content") or [] if isinstance(block, dict)]
    return {
        "stop_reason": response.get("stop_reason"),
        "stop_sequence": response.get("stop_sequence"),
        "n_blocks": len(blocks),
        "block_types": [block.get("type") for block in blocks],
        "text": "".join(block.get("text") or "" for block in blocks if block.get("type") == "text"),
        "reasoning": "".join(
            block.get("thinking") or "" for block in blocks if block.get("type") == "thinking"
        ),
        "tool_calls": [
            {"id": block.get("id"), "name": block.get("name"), "input": block.get("input")}
            for block in blocks
            if block.get("type") == "tool_use"
        ],
    }


SUMMARIES = {"chat": _chat, "responses": _responses, "messages": _messages}


def _comparable(calls: Any) -> Any:
    return json.loads(json.dumps(calls))


def _short(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) < 160 else shown[:100] + "…" + shown[-50:]
