"""Made-up streams of the corpus's kinds against the official SDKs' accumulators, as they are installed here."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from otel_gym.dialects import DialectName, read_stream, read_usage
from tests.corpus.invented import invented
from tests.corpus.summary import SUMMARIES

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")
ALL = invented()


def client(sdk: Any, kind: str, body: bytes) -> Any:
    """A client of the SDK for which every answer is the stream, with the HTTP library that the SDK wants."""
    http = pytest.importorskip(sdk.DefaultHttpxClient.__mro__[1].__module__.split(".")[0])
    fields = {"content-type": "text/event-stream"}
    transport = http.MockTransport(lambda _: http.Response(200, headers=fields, content=body))
    return getattr(sdk, kind)(
        api_key="none", base_url="http://engine", http_client=http.Client(transport=transport)
    )


def chat(body: bytes) -> Any:
    """The state that the SDK builds from the chunks, as far as it follows them."""
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    chunks = client(openai, "OpenAI", body).chat.completions.create(
        model="m", messages=[], stream=True
    )
    try:
        for chunk in chunks:
            with suppress(openai.LengthFinishReasonError):
                state.handle_chunk(chunk)
    except openai.APIError:
        pass
    return state.current_completion_snapshot


def messages(body: bytes) -> Any:
    """The message that the SDK has built when the stream ends, however it ends."""
    asked = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
    with client(anthropic, "Anthropic", body).messages.stream(**asked) as stream:
        try:
            for _ in stream:
                pass
        except anthropic.APIError:
            pass
        return stream.current_message_snapshot


def responses(body: bytes) -> Any:
    """The response of the last event that has one."""
    events = client(openai, "OpenAI", body).responses.create(model="m", input="Hi", stream=True)
    return [event.response for event in events if hasattr(event, "response")][-1]


ACCUMULATORS: dict[DialectName, Any] = {"chat": chat, "messages": messages, "responses": responses}


def summary(dialect: DialectName, response: dict[str, Any]) -> dict[str, Any]:
    """What is compared: texts, calls, ends, identity and counts."""
    return {
        **SUMMARIES[dialect](response),
        "id": response["id"],
        "model": response["model"],
        "usage": read_usage(dialect, response),
    }


@pytest.mark.filterwarnings("ignore")  # the SDKs' own, about models that they find old
@pytest.mark.parametrize(
    ("dialect", "body"), [(dialect, body) for _, dialect, body in ALL], ids=[one[0] for one in ALL]
)
def test_a_made_up_stream_reads_as_the_official_sdk_reads_it(
    dialect: DialectName, body: bytes
) -> None:
    """Odd framing, cuts after every event, interleaved parts and late counts: the same response."""
    ours = read_stream(dialect, [body]).response
    assert ours is not None
    theirs = ACCUMULATORS[dialect](body).model_dump()
    assert summary(dialect, ours) == summary(dialect, theirs)
