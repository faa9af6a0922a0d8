"""What a pin does to a call stands in its line and on its span."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pytest

from otel_gym.cli.main import run as command_line
from otel_gym.correlation.run import open_run
from otel_gym.servers.model import build_model_server
from otel_gym.settings import ModelServerSettings
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.spans import RecordPlace, span_from_record
from tests.engines.recording import RecordingEngine, json_script
from tests.engines.serving import Served
from tests.engines.wire import call
from tests.servers.test_model import lines, settings_for

PINS = {"temperature": 1.0, "top_p": 0.5, "top_k": -1, "max_tokens": 7}


@pytest.mark.parametrize("through_completions", [False, True])
def test_from_request_to_span_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], through_completions: bool
) -> None:
    """The line keeps the caller's request and the account of what was sent; the span has the values that the engine got; the report finds what was replaced."""
    completion = {"id": "c", "choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}
    chat = {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}  # fmt: skip
    server = ModelServerSettings(
        name="policy",
        sampling_overrides=PINS,
        use_completions_api=through_completions,
        chat_template="{{ messages[0].content }}",
    )
    request = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.1,
        "top_p": 0.5,
        "max_completion_tokens": 99,
    }
    with RecordingEngine() as engine:
        engine.answers("/v1/chat/completions", json_script(chat))
        engine.answers("/v1/completions", json_script(completion))
        app = build_model_server(
            settings_for(tmp_path), server.model_copy(update={"base_url": engine.url})
        )
        with Served(app) as served:
            path = "/ng-rollout/7-2/v1/chat/completions"
            call(served.url, "POST", path, orjson.dumps(request))
        sent = next(r for r in engine.received if r.method == "POST" and r.path.endswith("completions"))  # fmt: skip
    assert sent.path == ("/v1/completions" if through_completions else "/v1/chat/completions")

    (line,) = lines(tmp_path)
    assert line["request"] == request
    assert line["response"]["choices"][0]["message"]["content"] == "x"
    account = line["sampling"]
    assert account["requested"] == {"temperature": 0.1, "top_p": 0.5, "max_completion_tokens": 99}
    assert account["effective"] == {"temperature": 1.0, "top_p": 0.5, "top_k": -1, "max_completion_tokens": 7}  # fmt: skip
    assert sorted(account["overridden"]) == ["max_completion_tokens", "temperature"]
    assert account["outbound_sha256"] == hashlib.sha256(sent.body).hexdigest()

    place = RecordPlace("7-2", str(tmp_path / "7-2.capture.jsonl"), 0)
    span = span_from_record(line, place, open_run(tmp_path), SpanOptions())
    attributes = span.attributes
    assert attributes["gen_ai.request.temperature"] == 1.0
    assert attributes["gen_ai.request.top_p"] == 0.5
    assert attributes["gen_ai.request.top_k"] == -1
    assert attributes["gen_ai.request.max_tokens"] == 7
    assert attributes["otel_gym.sampling.overridden"] == ["max_completion_tokens", "temperature"]

    required = "temperature=1.0,top_p=0.5,top_k=-1,max_tokens=7"
    assert command_line(["sampling", str(tmp_path), "--json", "--require", required]) == 0
    (reported,) = orjson.loads(capsys.readouterr().out)["servers"]
    assert reported["overridden"] == {"max_tokens": 1, "temperature": 1}
    assert reported["without"] == {"top_k": 1}
