"""Jaeger with the files of collector_config."""

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.routing import Match

from otel_gym.viewer.app import create_app
from otel_gym.viewer.options import ViewerOptions
from tools.backends.processes import CONFIGURATION, Jaeger

pytestmark = pytest.mark.stack


def _send(otlp_http: str, trace_id: str, span_id: str) -> None:
    now = time.time_ns()
    span = {
        "traceId": trace_id,
        "spanId": span_id,
        "name": "chat m",
        "kind": 3,
        "startTimeUnixNano": str(now - 1_000_000),
        "endTimeUnixNano": str(now),
    }
    service = {"key": "service.name", "value": {"stringValue": "otel-gym"}}
    body = {
        "resourceSpans": [
            {"resource": {"attributes": [service]}, "scopeSpans": [{"spans": [span]}]},
        ]
    }
    request = urllib.request.Request(
        f"{otlp_http}/v1/traces",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def test_a_span_sent_over_otlp_is_found_by_trace_id_and_by_search(jaeger: Jaeger) -> None:
    """The memory configuration takes OTLP over HTTP and answers by trace id; an unknown id is no trace."""
    trace_id = "5b8efff798038103d269b633813fc60c"
    assert jaeger.trace(trace_id) is None
    _send(jaeger.otlp_http, trace_id, "eee19b7ec3c1b174")
    found = jaeger.trace(trace_id)
    assert found is not None
    assert [span["spanID"] for span in found["spans"]] == ["eee19b7ec3c1b174"]
    assert trace_id in {trace["traceID"] for trace in jaeger.traces(limit="1500")}


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_traces_survive_a_restart_with_badger(jaeger_badger: Jaeger, end: str) -> None:
    """Traces that Jaeger answered for are still there after an orderly stop and after a kill."""
    trace_id = "6b8efff798038103d269b633813fc60c"
    _send(jaeger_badger.otlp_http, trace_id, "aee19b7ec3c1b174")
    assert jaeger_badger.trace(trace_id) is not None
    getattr(jaeger_badger, end)()
    jaeger_badger.start()
    found = jaeger_badger.trace(trace_id)
    assert found is not None
    assert [span["spanID"] for span in found["spans"]] == ["aee19b7ec3c1b174"]


@pytest.mark.parametrize(
    "name",
    [
        "jaeger/config.yaml",
        "jaeger/memory.yaml",
        "scale/jaeger-ingester.yaml",
        "scale/jaeger-query.yaml",
    ],
)
def test_jaeger_finds_no_mistake_in_its_files(
    backend_program: Callable[[str], Path], name: str
) -> None:
    """Jaeger itself takes every key of each of its files, those for scale-out included; a key that is wrong it refuses."""
    jaeger = backend_program("jaeger")
    wrong = "yaml:extensions::jaeger_storage::backend: x"
    for more, code in (([], 0), ([f"--config={wrong}"], 1)):
        checked = subprocess.run(
            [jaeger, "validate", f"--config={CONFIGURATION / name}", *more],
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == code, checked.stderr


def test_links_of_spans_lead_to_pages_of_the_viewer(tmp_path: Path) -> None:
    """Each link that Jaeger's UI puts on a span or trace is a search of its own or a page that `otel-gym view` serves."""
    interface = json.loads((CONFIGURATION / "jaeger" / "ui.json").read_text())
    app = create_app(ViewerOptions(directory=tmp_path))
    viewer = "http://localhost:8687"
    found = []
    for pattern in interface["linkPatterns"]:
        url = re.sub(r"#\{[^}]+\}", "0-0", pattern["url"])
        if url.startswith("/search?service=otel-gym&"):
            continue
        assert url.startswith(viewer)
        scope = {"type": "http", "method": "GET", "path": url.removeprefix(viewer)}
        found.append(any(route.matches(scope)[0] is Match.FULL for route in app.routes))
    assert found == [True, True]
