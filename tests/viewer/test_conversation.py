"""A conversation is read from every dialect as a person would read it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_gym.dialects import EncodingError, decode_body, read_stream
from otel_gym.viewer.conversation import Message, placeholder, request_messages, response_messages
from otel_gym.viewer.index.messages import canonical, chain, request_items
from otel_gym.viewer.templating import render
from tests.corpus.exchanges import Recorded, exchanges


def _response(exchange: Recorded) -> dict[str, Any] | None:
    try:
        body = decode_body(exchange.content_encoding, exchange.body, 1 << 26)
    except EncodingError:
        return None
    if exchange.streaming:
        return read_stream(exchange.dialect, [body]).response
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _texts(messages: list[Message], kind: str) -> list[str]:
    return [part.text for message in messages for part in message.parts if part.kind == kind]


def test_recorded_exchanges_read_as_the_official_sdk_reads_them(shared_dir: Path) -> None:
    """Of every recorded exchange, the text, the refusals and the tools called are those that the vendor's SDK found, and nothing of it fails."""
    compared = 0
    for exchange in exchanges(shared_dir / "corpus"):
        request_messages(exchange.dialect, exchange.request)
        messages = response_messages(_response(exchange))
        expect = exchange.expect
        if not expect or not messages or exchange.status_code != 200:
            continue
        if expect.get("n_choices", 1) == 1 and "text" in expect:
            text = expect["text"]
            text = text.get("0") if isinstance(text, dict) else text
            # Content that is no text is shown as what it is; where the SDK finds none, we may.
            if text and isinstance(text, str):
                assert "".join(_texts(messages, "text")) == text, exchange.path
                compared += 1
        names = [part.name for message in messages for part in message.parts if part.kind == "tool_call"]  # fmt: skip
        calls = expect.get("tool_calls") or []
        if isinstance(calls, dict):
            calls = [call for choice in calls.values() for call in choice]
        for call in calls:
            assert call["name"] in names, (exchange.path, names)
    assert compared > 200


def test_recorded_exchanges_make_pages(shared_dir: Path) -> None:
    """Every message of every recorded exchange can be drawn."""
    template = "{% import 'parts.html' as parts %}{% for m in messages %}{{ parts.message(m) }}{% endfor %}"
    from otel_gym.viewer.templating import environment

    page = environment().from_string(template)
    drawn = 0
    for exchange in exchanges(shared_dir / "corpus"):
        messages = [
            *request_messages(exchange.dialect, exchange.request),
            *response_messages(_response(exchange)),
        ]
        drawn += page.render(messages=messages).count("<article")
    assert drawn > 1000


@pytest.mark.parametrize(
    ("block", "kind", "text"),
    [
        ({"type": "text", "text": "a"}, "text", "a"),
        ({"type": "input_text", "text": "a"}, "text", "a"),
        ({"type": "thinking", "thinking": "hm", "signature": "x"}, "reasoning", "hm"),
        ({"type": "redacted_thinking", "data": "abcd"}, "reasoning", "[4 characters, encrypted by the provider]"),
        ({"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}, "tool_call", '{"a": 1}'),
        ({"type": "server_tool_use", "id": "t", "name": "web_search", "input": {}}, "tool_call", "{}"),
        ({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "r"}]}, "tool_result", "r"),
        ({"type": "refusal", "refusal": "no"}, "refusal", "no"),
        ({"type": "something_new", "x": 1}, "json", '{"type": "something_new", "x": 1}'),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "image", "at https://example.org/a.png"),
        ({"type": "input_file", "filename": "a.pdf"}, "file", "filename a.pdf"),
    ],
)  # fmt: skip
def test_blocks_of_all_dialects(block: dict[str, Any], kind: str, text: str) -> None:
    """Each kind of content block becomes the part that a reader expects."""
    [message] = request_messages("messages", {"messages": [{"role": "user", "content": [block]}]})
    assert [(part.kind, part.text) for part in message.parts] == [(kind, text)]


def test_items_of_the_responses_api() -> None:
    """Items that are no messages have their place in the conversation too."""
    request = {
        "instructions": "be brief",
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "thinking"}]},
            {"type": "function_call", "name": "f", "call_id": "c", "arguments": "{broken"},
            {"type": "function_call_output", "call_id": "c", "output": "42"},
        ],
    }
    messages = request_messages("responses", request)
    assert [message.role for message in messages] == ["system", "user", "assistant", "assistant", "tool"]  # fmt: skip
    assert [message.parts[0].kind for message in messages] == [
        "text",
        "text",
        "reasoning",
        "tool_call",
        "tool_result",
    ]
    assert messages[3].parts[0].text == "{broken"


def test_images_are_placeholders_with_their_facts() -> None:
    """An image is named by type, size and digest; its bytes are on no page."""
    data = base64.b64encode(b"\x89PNG" + bytes(1000)).decode()
    for block in (
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
    ):
        text = placeholder(block)
        assert text.startswith("image/png · 1,004 bytes · sha256 ")
        assert data[:40] not in text


def test_equal_beginnings_have_equal_chains() -> None:
    """The digest of n messages is equal exactly where the messages are, whatever the order of keys."""
    one = request_items("chat", {"messages": [{"role": "user", "content": "a"}, {"role": "x"}]})
    other = [{"content": "a", "role": "user"}, {"role": "x"}, {"role": "y"}]
    assert list(chain(one)) == list(chain(other))[:2]
    assert list(chain(["ab", "c"]))[-1] != list(chain(["a", "bc"]))[-1]
    assert canonical({"a": 2**70}) == b'{"a": 1180591620717411303424}'


def test_a_template_without_a_filter_still_shows_nothing_unseen() -> None:
    """The environment itself makes unseen characters visible, so that no page can forget to."""
    page = render(
        "problem.html", name="a\u202eb", twin=None, live=None, title="<b>\x1b", text="\u200b"
    )
    assert "\u202e" not in page and "\x1b" not in page and "\u200b" not in page
    assert "&lt;b&gt;" in page
