"""What a client receives through otel-gym, with capture on, is what the engine sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from otel_gym.servers.model import build_model_server
from otel_gym.settings import ModelServerSettings
from tests.engines.recording import EVENT_STREAM, JSON, RecordingEngine, Script, stream_script
from tests.engines.serving import Served
from tests.engines.wire import call
from tests.servers.test_model import lines, settings_for

CHAT = [
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"He"}}]}\n\n',
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"y"},"finish_reason":"stop"}]}\n',
    b"\ndata: [DO",
    b"NE]\n\n",
]
MESSAGES = [
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}}\n\n',
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hey"}}\n\n',
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
]
SCRIPTS: dict[str, Script] = {
    "stream": Script(CHAT, headers=[*EVENT_STREAM, (b"x-codex-turn-state", b"abc"), (b"server", b"vllm")]),
    "cut stream": Script(CHAT[:2], headers=EVENT_STREAM),
    "json with a length": Script([b'{"id":"x",', b'"a":[1, 2]}'], headers=JSON, content_length=True),
    "chunked json": Script([b'{"id":"x",', b'"a":[1, 2]}'], headers=JSON),
    "error": Script([b'{"error":{"message":"slow down"}}'], status=429, headers=[*JSON, (b"retry-after", b"7")], content_length=True),
    "no content": Script([], status=204, headers=[]),
    "not utf-8": Script([b"\xff\xfe\x00binary"], headers=[(b"content-type", b"application/octet-stream")], content_length=True),
}  # fmt: skip


@pytest.fixture
def engine() -> Iterator[RecordingEngine]:
    with RecordingEngine() as recording:
        yield recording


@pytest.fixture
def server(engine: RecordingEngine, tmp_path: Path) -> Iterator[str]:
    app = build_model_server(settings_for(tmp_path / "c"), ModelServerSettings(base_url=engine.url))
    with Served(app) as served:
        yield served.url


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_wire_is_the_engines_own(
    engine: RecordingEngine, server: str, tmp_path: Path, name: str
) -> None:
    """Status, fields, every byte and every chunk border equal the engine's own, and the record holds the same bytes."""
    engine.default = SCRIPTS[name]
    body = b'{"model":"m","stream":true}'
    direct = call(engine.url, "POST", "/v1/chat/completions", body)
    through = call(server, "POST", "/ng-rollout/7-2/v1/chat/completions", body)
    assert (through.status, through.headers, through.complete) == (
        direct.status,
        direct.headers,
        direct.complete,
    )
    assert through.chunks == direct.chunks
    (line,) = lines(tmp_path / "c")
    assert line["status_code"] == SCRIPTS[name].status and line["request"] == {
        "model": "m",
        "stream": True,
    }


async def test_sdk_clients_that_leave_at_the_terminal_event_had_complete_calls(
    engine: RecordingEngine, server: str, tmp_path: Path
) -> None:
    """The official SDKs' streams, which close without reading to the end, give complete records and the right text."""
    engine.answers("/v1/chat/completions", stream_script(*CHAT))
    engine.answers("/v1/messages", stream_script(*MESSAGES))
    request: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with AsyncOpenAI(
        base_url=f"{server}/ng-rollout/7-2/v1", api_key="k", max_retries=0
    ) as openai:
        text = ""
        async for chunk in await openai.chat.completions.create(**request, stream=True):
            text += chunk.choices[0].delta.content or ""
        assert text == "Hey"
    for base in ("/ng-rollout/7-2", "/ng-rollout/7-2/v1"):
        async with (
            AsyncAnthropic(base_url=server + base, api_key="k", max_retries=0) as anthropic,
            anthropic.messages.stream(**request, max_tokens=9) as stream,
        ):
            assert await stream.get_final_text() == "Hey"
    found = lines(tmp_path / "c")
    assert [
        (line["dialect"], line["stream"]["terminal"], line["error_category"]) for line in found
    ] == [
        ("chat", "complete", None),
        ("messages", "complete", None),
        ("messages", "complete", None),
    ]
    assert found[1]["response"]["usage"]["input_tokens"] == 3
