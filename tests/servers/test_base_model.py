"""A model server written in Python: routes, streams, capture, errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from otel_gym.capture.record import ModelRef
from otel_gym.capture.store import CaptureStore, read_model_call_records
from otel_gym.servers.base_model import SimpleResponsesAPIModel


def _chat(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
    return {"id": "c", "model": "m", "choices": [choice], "usage": usage}


class Model(SimpleResponsesAPIModel):
    """Answers all dialects but completions."""

    async def chat_completions(self, request: Request, body: dict[str, Any]) -> Any:
        if body.get("raise"):
            raise RuntimeError("the model is gone")
        return self._chunks() if body.get("stream") else _chat(self.name)

    async def messages(self, request: Request, body: dict[str, Any]) -> Any:
        async def events() -> AsyncIterator[dict[str, Any]]:
            yield {"type": "message_start", "message": {"id": "x", "role": "assistant"}}
            yield {"type": "message_stop"}

        return events()

    async def responses(self, request: Request, body: dict[str, Any]) -> Any:
        return {"id": "r", "object": "response", "status": "completed", "output": []}

    async def _chunks(self) -> AsyncIterator[dict[str, Any]]:
        for text in ("a", "b"):
            yield {"choices": [{"index": 0, "delta": {"content": text}}]}
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def _settings(directory: Path, on: bool = True) -> dict[str, Any]:
    return {"observability_enabled": on, "model_call_capture_dir": str(directory)}


def _client(model: SimpleResponsesAPIModel) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(model, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://model")


async def _close(model: SimpleResponsesAPIModel) -> None:
    assert model.observability is not None
    await model.observability.aclose()


async def test_calls_are_captured_with_the_models_reference(tmp_path: Path) -> None:
    """A prefixed call of every dialect that the subclass writes becomes a record that names the model server."""
    model = Model(_settings(tmp_path), name="policy")
    async with _client(model) as client:
        for path in ("chat/completions", "messages", "responses"):
            answer = await client.post(f"/ng-rollout/1-0/v1/{path}", json={"model": "m"})
            assert answer.status_code == 200
    await _close(model)
    records = read_model_call_records(CaptureStore(tmp_path), "1-0")
    assert [one.dialect for one in records] == ["chat", "messages", "responses"]
    assert {one.model_ref for one in records} == {model.model_ref}
    assert model.model_ref == ModelRef(type="responses_api_models", name="policy")


async def test_streams_have_their_dialects_shape(tmp_path: Path) -> None:
    """Events that a handler yields go out as the dialect's stream: named events, or data and [DONE]."""
    model = Model(_settings(tmp_path))
    async with _client(model) as client:
        chat = await client.post("/ng-rollout/1-0/v1/chat/completions", json={"stream": True})
        messages = await client.post("/ng-rollout/1-0/v1/messages", json={"stream": True})
    await _close(model)
    assert chat.headers["content-type"].startswith("text/event-stream")
    assert chat.text.startswith('data: {"choices"')
    assert chat.text.endswith("data: [DONE]\n\n")
    assert messages.text.startswith("event: message_start\ndata: {")
    records = read_model_call_records(CaptureStore(tmp_path), "1-0")
    assert [one.stream_terminal for one in records] == ["complete", "complete"]


async def test_several_model_servers_append_to_one_rollout(tmp_path: Path) -> None:
    """A policy and a judge with the same capture directory write one file, and each record says whose it is."""
    servers = [Model(_settings(tmp_path), name=name) for name in ("policy", "judge")]
    async with _client(servers[0]) as policy, _client(servers[1]) as judge:
        await asyncio.gather(
            *(
                client.post("/ng-rollout/1-0/v1/chat/completions", json={"n": number})
                for number in range(10)
                for client in (policy, judge)
            )
        )
    for server in servers:
        await _close(server)
    records = read_model_call_records(CaptureStore(tmp_path), "1-0")
    names = [one.model_ref.name for one in records if one.model_ref is not None]
    assert sorted(names) == ["judge"] * 10 + ["policy"] * 10
    assert [one.call_index for one in records] == list(range(20))


async def test_observability_off_writes_nothing(tmp_path: Path) -> None:
    """Without observability a prefixed call is answered and nothing is written."""
    model = Model(_settings(tmp_path / "never", on=False))
    async with _client(model) as client:
        answer = await client.post("/ng-rollout/1-0/v1/responses", json={})
    assert answer.json()["id"] == "r"
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/v1/completions", b"{}", 404),
        ("/v1/chat/completions", b"{", 400),
        ("/v1/messages", b"[]", 400),
        ("/v1/responses", b'{"stream": true}', 400),
    ],
)
async def test_bad_requests(path: str, content: bytes, status: int) -> None:
    """What the subclass does not write is 404; an unusable body, or a stream that it can't give, is 400 in the caller's dialect."""
    async with _client(Model()) as client:
        answer = await client.post(path, content=content)
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_a_websocket_upgrade_is_refused(tmp_path: Path) -> None:
    """A client that tries a WebSocket first is answered with 426, at which it falls back to POST; that is no model call."""
    model = Model(_settings(tmp_path))
    async with _client(model) as client:
        headers = {"connection": "upgrade", "upgrade": "websocket"}
        answer = await client.get("/ng-rollout/1-0/v1/responses", headers=headers)
    await _close(model)
    assert answer.status_code == 426
    assert list(CaptureStore(tmp_path).rollouts()) == []


async def test_an_exception_is_a_500_and_a_record(tmp_path: Path) -> None:
    """A handler that raises gives its caller an error in the dialect, and the record says which exception it was."""
    model = Model(_settings(tmp_path))
    async with _client(model) as client:
        answer = await client.post("/ng-rollout/1-0/v1/chat/completions", json={"raise": 1})
    await _close(model)
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    [raw] = CaptureStore(tmp_path).read("1-0")
    assert raw["error_category"] == "exception"
    assert raw["exception"]["message"] == "the model is gone"
