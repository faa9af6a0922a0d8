"""Chat served through /v1/completions: who renders, what goes out, and what comes back as chat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI

from otel_gym.errors import SettingsError
from otel_gym.servers.chat_completions import StreamedAnswer, chat_answer
from otel_gym.servers.chat_template import ChatTemplate
from otel_gym.servers.engine import EngineForwarder
from otel_gym.servers.refusal import Refusal
from otel_gym.settings import ModelServerSettings
from tests.engines.recording import Received, RecordingEngine, Script, json_script, stream_script
from tests.engines.serving import Served
from tests.engines.wire import WireAnswer, call

TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PROPS = {"chat_template": TEMPLATE, "bos_token": "<s>", "eos_token": "</s>"}
NOT_FOUND = json_script({"error": "no such path"}, status=404)


@pytest.fixture(scope="module")
def running_engine() -> Iterator[RecordingEngine]:
    with RecordingEngine() as recording:
        yield recording


@pytest.fixture
def engine(running_engine: RecordingEngine) -> RecordingEngine:
    """An engine that has completions and nothing else until a test says so."""
    running_engine.reset()
    running_engine.default = NOT_FOUND
    running_engine.answers("/v1/completions", _complete)
    return running_engine


def _complete(request: Received) -> Script:
    base = {"id": "cmpl-1", "created": 5, "model": "m", "system_fingerprint": "f"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    asked = request.json
    logprobs = {"tokens": ["ye", "s"], "token_logprobs": [-0.1, -0.2], "top_logprobs": [{"ye": -0.1, "no": -2}, None]}  # fmt: skip
    if not asked.get("stream"):
        choice = {"index": 0, "text": "yes", "finish_reason": "stop", "token_ids": [7]}
        if "logprobs" in asked:
            choice["logprobs"] = logprobs
        return json_script(
            {**base, "object": "text_completion", "choices": [choice], "usage": usage}
        )
    texts = [("ye", None), ("s", None), ("", "stop")]
    events = [{**base, "object": "text_completion", "choices": [{"index": 0, "text": t, "finish_reason": r}]} for t, r in texts]  # fmt: skip
    if asked.get("stream_options", {}).get("include_usage"):
        events.append({**base, "object": "text_completion", "choices": [], "usage": usage})
    wire = [b"data: " + orjson.dumps(event) + b"\n\n" for event in events]
    return stream_script(b": keep-alive\n\n", *wire, b"data: [DONE]\n\n")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def serve(stack: ExitStack, engine: RecordingEngine, **more: Any) -> str:
    usage = more.pop("usage", False)
    settings = ModelServerSettings(base_url=engine.url, use_completions_api=True, **more)
    return stack.enter_context(Served(EngineForwarder(settings, request_stream_usage=usage))).url


def post(url: str, body: dict[str, Any]) -> WireAnswer:
    return call(url, "POST", "/v1/chat/completions", orjson.dumps(body))


def completions(engine: RecordingEngine) -> list[dict[str, Any]]:
    return [request.json for request in engine.received if request.path == "/v1/completions"]


@pytest.mark.parametrize(("empty_prompt", "begin"), [([1], ""), ([], "<s>")])
def test_llama_cpp_names_its_template(
    engine: RecordingEngine, stack: ExitStack, empty_prompt: list[int], begin: str
) -> None:
    """The template of `GET /props` renders the prompt, asked for once; a first token that the engine puts there itself is left to it."""
    engine.answers("/props", json_script(PROPS))
    engine.answers("/tokenize", json_script({"tokens": empty_prompt}))
    url = serve(stack, engine)
    post(url, CHAT)
    post(url, {**CHAT, "max_tokens": 4})
    assert completions(engine) == [
        {"model": "m", "prompt": begin + "[user]hi[assistant]", "add_special_tokens": False},
        {
            "model": "m",
            "prompt": begin + "[user]hi[assistant]",
            "add_special_tokens": False,
            "max_tokens": 4,
        },
    ]
    assert [r.path for r in engine.received].count("/props") == 1


def test_vllm_renders_itself(engine: RecordingEngine, stack: ExitStack) -> None:
    """Without a named template the engine renders at `/tokenize`; where the caller set no limit, the room that is left is sent, as completions would stop at 16."""
    engine.answers(
        "/tokenize", json_script({"tokens": [1, 2, 3], "count": 3, "max_model_len": 100})
    )
    url = serve(stack, engine, api_key="key")
    tools = [{"type": "function", "function": {"name": "f"}}]
    post(url, {**CHAT, "tools": tools, "tool_choice": "auto", "temperature": 0.5})
    question = next(r for r in engine.received if r.path == "/tokenize")
    assert question.json == {**CHAT, "tools": tools}
    assert question.header("authorization") == "Bearer key"
    assert completions(engine) == [
        {"model": "m", "prompt": [1, 2, 3], "max_tokens": 97, "temperature": 0.5}
    ]


def test_a_given_template_on_vllm(
    engine: RecordingEngine, stack: ExitStack, tmp_path: Path
) -> None:
    """A template from a file is used before the engine's; the room left is asked for the rendered prompt."""
    file = tmp_path / "template.jinja"
    file.write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}")
    engine.answers("/tokenize", json_script({"tokens": [1], "count": 1, "max_model_len": 10}))
    post(serve(stack, engine, chat_template=str(file)), CHAT)
    assert completions(engine)[0]["prompt"] == "<hi>"
    assert completions(engine)[0]["max_tokens"] == 9


def test_no_template_anywhere(engine: RecordingEngine, stack: ExitStack) -> None:
    """An engine that neither names a template nor renders is an error that says what to configure."""
    answer = post(serve(stack, engine), CHAT)
    assert answer.status == 502
    assert "configure chat_template" in orjson.loads(answer.body)["error"]["message"]
    assert completions(engine) == []


@pytest.mark.parametrize(
    "messages",
    [
        "hi",
        ["hi"],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    ],
)
def test_messages_that_cannot_be_rendered(
    engine: RecordingEngine, stack: ExitStack, messages: Any
) -> None:
    """What a prompt cannot hold is refused with 400, never sent in part."""
    answer = post(serve(stack, engine, chat_template=TEMPLATE), {**CHAT, "messages": messages, "max_tokens": 1})  # fmt: skip
    assert (answer.status, completions(engine)) == (400, [])


def test_only_chat_is_rendered(engine: RecordingEngine, stack: ExitStack) -> None:
    """Other paths are passed on as they are."""
    url = serve(stack, engine, chat_template=TEMPLATE)
    call(url, "POST", "/v1/completions", b'{"prompt": "x"}')
    call(url, "POST", "/v1/responses", b'{"input": "x"}')
    assert [(r.path, r.body) for r in engine.received] == [
        ("/v1/completions", b'{"prompt": "x"}'),
        ("/v1/responses", b'{"input": "x"}'),
    ]


async def test_the_sdk_reads_the_answer(engine: RecordingEngine, stack: ExitStack) -> None:
    """The official SDK gets a chat completion, streamed and not, with usage, finish reason and log probabilities."""
    engine.answers("/props", json_script(PROPS))
    url = serve(stack, engine)
    async with AsyncOpenAI(base_url=url + "/v1", api_key="k", max_retries=0) as client:
        whole = await client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2)
        stream = await client.chat.completions.create(
            **CHAT, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert completions(engine)[0]["logprobs"] == 2
    choice = whole.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "yes", "stop")  # fmt: skip
    assert choice.logprobs is not None and choice.logprobs.content is not None
    assert [token.token for token in choice.logprobs.content] == ["ye", "s"]
    assert [top.token for top in choice.logprobs.content[0].top_logprobs] == ["ye", "no"]
    assert whole.usage is not None and whole.usage.total_tokens == 5
    assert whole.object == "chat.completion"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "yes"
    assert [c.choices[0].delta.role for c in chunks if c.choices] == ["assistant", None, None]
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 2


def test_usage_that_only_we_asked_for_stays_with_us(
    engine: RecordingEngine, stack: ExitStack
) -> None:
    """With `request_stream_usage` the usage chunk is asked for and kept from a caller who did not ask."""
    url = serve(stack, engine, chat_template=TEMPLATE, usage=True)
    answer = post(url, {**CHAT, "stream": True, "max_tokens": 3})
    assert completions(engine)[0]["stream_options"] == {"include_usage": True}
    assert b"usage" not in answer.body
    assert answer.body.startswith(b": keep-alive\n\n") and answer.body.endswith(b"data: [DONE]\n\n")


def test_an_engines_error_comes_back_as_it_is(engine: RecordingEngine, stack: ExitStack) -> None:
    """A status that is no success is passed through, body and all."""
    engine.answers("/v1/completions", json_script({"error": {"message": "too long"}}, status=400))
    answer = post(serve(stack, engine, chat_template=TEMPLATE), {**CHAT, "max_tokens": 1})
    assert (answer.status, answer.body) == (400, b'{"error":{"message":"too long"}}')


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_conversion_does_not_depend_on_chunks(size: int) -> None:
    """However the engine's bytes are cut, the same chat events come out; what is no completion passes unchanged."""
    wire = b''.join([
        b': ping\r\n\r\n',
        b'data: {"id":"x","choices":[{"index":1,"text":"a"},{"index":0,"text":""}]}\r\n\r\n',
        b'data: not json\n\n',
        b'data: {"error":{"message":"boom"}}\n\n',
        b'data: {"choices":[7,{"text":5}]}',
    ])  # fmt: skip
    transform = StreamedAnswer()
    out = b"".join(transform.feed(wire[i : i + size]) for i in range(0, len(wire), size))
    assert out + transform.finish() == b"".join([
        b': ping\r\n\r\n',
        b'data: {"id":"x","choices":[{"index":1,"delta":{"role":"assistant","content":"a"}},{"index":0,"delta":{"role":"assistant","content":""}}],"object":"chat.completion.chunk"}\n\n',
        b'data: not json\n\n',
        b'data: {"error":{"message":"boom"}}\n\n',
        b'data: {"choices":[7,{"index":0,"delta":{}}],"object":"chat.completion.chunk"}\n\n',
    ])  # fmt: skip


def test_whole_answers_that_are_no_completion() -> None:
    """An object without choices comes back as it is."""
    assert chat_answer({"error": {"message": "x"}}) == {"error": {"message": "x"}}


def test_templates_follow_the_usual_conventions() -> None:
    """`tojson`, `raise_exception`, loop controls, tool call arguments as objects, `chat_template_kwargs`, an open last message."""
    calls = [{"function": {"name": "f", "arguments": '{"a": "<"}'}}]
    template = ChatTemplate(
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{{ m.tool_calls[0].function.arguments | tojson }}{{ thinking }}{% endfor %}"
        "{{ add_generation_prompt }}"
    )
    body = {
        "messages": [{"role": "assistant", "content": None, "tool_calls": calls}, {"role": "user"}],
        "chat_template_kwargs": {"thinking": "on"},
        "continue_final_message": True,
    }
    assert template.render(body) == '{"a": "<"}onFalse'
    with pytest.raises(Refusal, match="alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render({"messages": []})


@pytest.mark.parametrize("attack", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}"])
def test_templates_run_in_a_sandbox(attack: str) -> None:
    """An engine's template can neither reach Python nor change the request."""
    with pytest.raises(Refusal):
        ChatTemplate(attack).render({"messages": []})


def test_a_template_that_is_none_stops_the_start(tmp_path: Path) -> None:
    """A file that is missing and a text that is no Jinja are found at start."""
    for template in (str(tmp_path / "missing.jinja"), "{% for %}"):
        with pytest.raises(SettingsError, match="chat_template"):
            EngineForwarder(
                ModelServerSettings(
                    base_url="http://127.0.0.1:1", use_completions_api=True, chat_template=template
                )
            )
