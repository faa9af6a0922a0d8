"""The official SDKs, configured once through `base_url_for_run`, and their own retries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from starlette.requests import Request

from otel_gym.capture.store import CaptureStore
from otel_gym.rollouts import ATTACHMENT_KEY, CollectOptions, collect_rollouts
from otel_gym.servers.agent import SimpleResponsesAPIAgent
from tests.rollouts.conftest import MakeStack, read_rows

MESSAGES: Any = [{"role": "user", "content": "ping"}]
CALLS = [
    (dialect, client, mode)
    for dialect in ("chat", "responses", "messages")
    for client in ("sync", "async")
    for mode in ("whole", "stream")
]


def sync_call(root: str, dialect: str, mode: str, **options: Any) -> str:
    """One call with the synchronous SDK of a dialect; the answer's text."""
    stream = mode == "stream"
    if dialect == "messages":
        with anthropic.Anthropic(base_url=root, api_key="unused", **options) as claude:
            named: Any = {"model": "echo", "max_tokens": 9, "messages": MESSAGES}
            if not stream:
                return str(claude.messages.create(**named).content[0].text)  # type: ignore[union-attr]
            with claude.messages.stream(**named) as events:
                return events.get_final_text()
    with openai.OpenAI(base_url=f"{root}/v1", api_key="unused", **options) as client:
        if dialect == "responses":
            if not stream:
                return client.responses.create(model="echo", input="ping").output_text
            with client.responses.stream(model="echo", input="ping") as responses:
                return responses.get_final_response().output_text
        if not stream:
            answer = client.chat.completions.create(model="echo", messages=MESSAGES)
            return str(answer.choices[0].message.content)
        chunks = client.chat.completions.create(model="echo", messages=MESSAGES, stream=True)
        return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


async def async_call(root: str, dialect: str, mode: str, **options: Any) -> str:
    """One call with the asynchronous SDK of a dialect; the answer's text."""
    stream = mode == "stream"
    if dialect == "messages":
        async with anthropic.AsyncAnthropic(base_url=root, api_key="unused", **options) as claude:
            named: Any = {"model": "echo", "max_tokens": 9, "messages": MESSAGES}
            if not stream:
                return str((await claude.messages.create(**named)).content[0].text)  # type: ignore[union-attr]
            async with claude.messages.stream(**named) as events:
                return await events.get_final_text()
    async with openai.AsyncOpenAI(base_url=f"{root}/v1", api_key="unused", **options) as client:
        if dialect == "responses":
            if not stream:
                return (await client.responses.create(model="echo", input="ping")).output_text
            async with client.responses.stream(model="echo", input="ping") as responses:
                return (await responses.get_final_response()).output_text
        if not stream:
            answer = await client.chat.completions.create(model="echo", messages=MESSAGES)
            return str(answer.choices[0].message.content)
        chunks = await client.chat.completions.create(model="echo", messages=MESSAGES, stream=True)
        return "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])


class SDKAgent(SimpleResponsesAPIAgent):
    """Makes the one call that the task asks for."""

    async def run(self, request: Request, body: dict[str, Any]) -> Any:
        import asyncio

        root = self.base_url_for_run(self.model_server_url, body)
        dialect, client, mode = body["call"]
        if client == "sync":
            text = await asyncio.to_thread(sync_call, root, dialect, mode)
        else:
            text = await async_call(root, dialect, mode)
        return {"text": text, "num_model_calls": 1}


async def test_sdks_work_and_are_captured(make_stack: MakeStack, tmp_path: Path) -> None:
    """Both SDKs, synchronous and not, streamed and not, in all three dialects, get their answers, and each call is its rollout's one record."""
    stack = make_stack()
    agent = stack.serve(SDKAgent(stack.settings))
    tasks = [{"call": list(call)} for call in CALLS]
    options = CollectOptions(agent_url=agent, output=tmp_path / "out.jsonl")
    collected = await collect_rollouts(stack.settings, tasks, options)
    assert collected.whole
    for row in read_rows(collected.output):
        dialect, _client, mode = CALLS[row["_ng_task_index"]]
        attachment = row[ATTACHMENT_KEY]
        assert row["text"] == "ping"
        [call] = attachment["calls"]
        assert (call["dialect"], call["streamed"]) == (dialect, mode == "stream")
        assert call["error_category"] is None and call["tokens_in"] == 10
        assert call["stream_terminal"] == ("complete" if mode == "stream" else None)
        assert "gaps" not in attachment and attachment["metrics"]["num_resends"] == 0


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
@pytest.mark.parametrize("mode", ["whole", "stream"])
async def test_sdk_retries_are_marked_and_count_once(
    make_stack: MakeStack, tmp_path: Path, dialect: str, mode: str
) -> None:
    """Each HTTP attempt of an SDK is its own record; the repetitions are marked and named, and the attachment's sums count the call once."""
    stack = make_stack(lambda request, number: {1: 500, 2: 429}.get(number))
    agent = stack.serve(SDKAgent(stack.settings))
    options = CollectOptions(agent_url=agent, output=tmp_path / "out.jsonl")
    tasks = [{"call": [dialect, "async", mode]}]
    collected = await collect_rollouts(stack.settings, tasks, options)
    [row] = read_rows(collected.output)
    assert row["text"] == "ping"
    attachment = row[ATTACHMENT_KEY]
    calls = attachment["calls"]
    assert [one["status_code"] for one in calls] == [500, 429, 200]
    assert [one["resend"] for one in calls] == [
        None,
        {"count": 1, "of": calls[0]["model_call_id"], "reason": "header"},
        {"count": 2, "of": calls[1]["model_call_id"], "reason": "header"},
    ]
    metrics = attachment["metrics"]
    assert (metrics["num_calls"], metrics["num_errors"], metrics["num_resends"]) == (1, 0, 2)
    assert metrics["latency_total_ms"] == calls[2]["latency_total_ms"]
    assert metrics["with_resends"]["num_calls"] == 3
    assert metrics["with_resends"]["latency_total_ms"] == pytest.approx(
        sum(one["latency_total_ms"] for one in calls)
    )


async def test_a_repetition_without_a_header(make_stack: MakeStack, tmp_path: Path) -> None:
    """The same bytes sent again after a cut stream, by a client that sets no retry header, are a marked repetition; tokens count once."""
    import httpx

    stack = make_stack(lambda request, number: "cut" if number == 1 else None)

    class Plain(SimpleResponsesAPIAgent):
        async def run(self, request: Request, body: dict[str, Any]) -> Any:
            url = self.base_url_for_run(self.model_server_url, body) + "/v1/messages"
            async with httpx.AsyncClient() as client:
                for _ in range(2):
                    sent = {"model": "echo", "stream": True, "messages": MESSAGES}
                    await client.post(url, json=sent)
            return {}

    agent = stack.serve(Plain(stack.settings))
    options = CollectOptions(agent_url=agent, output=tmp_path / "out.jsonl")
    collected = await collect_rollouts(stack.settings, [{}], options)
    [row] = read_rows(collected.output)
    attachment = row[ATTACHMENT_KEY]
    first, second = attachment["calls"]
    assert (first["error_category"], first["tokens_in"]) == ("stream_truncated", 10)
    assert second["resend"] == {"count": 1, "of": first["model_call_id"], "reason": "same_bytes"}
    assert attachment["metrics"]["tokens_in"] == 10
    assert attachment["metrics"]["with_resends"]["tokens_in"] == 20


async def test_the_mark_is_an_attribute_of_the_span(make_stack: MakeStack, tmp_path: Path) -> None:
    """A marked repetition's span says so."""
    from otel_gym.correlation.run import read_run
    from otel_gym.tracing.options import SpanOptions
    from otel_gym.tracing.spans import RecordPlace, span_from_record

    stack = make_stack(lambda request, number: 500 if number == 1 else None)
    agent = stack.serve(SDKAgent(stack.settings))
    options = CollectOptions(agent_url=agent, output=tmp_path / "out.jsonl")
    await collect_rollouts(stack.settings, [{"call": ["chat", "async", "whole"]}], options)
    run = read_run(stack.directory)
    assert run is not None
    marks = []
    raw = CaptureStore(stack.directory).read("0-0")
    for one in raw:
        span = span_from_record(one, RecordPlace("0-0", "0-0.capture.jsonl", 0), run, SpanOptions())
        marks.append({k: v for k, v in dict(span.attributes).items() if "resend" in k})
    assert marks == [
        {},
        {
            "otel_gym.resend.count": 1,
            "otel_gym.resend.of": raw[0]["model_call_id"],
            "otel_gym.resend.reason": "header",
        },
    ]
