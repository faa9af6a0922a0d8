"""What Jaeger holds, compared with what was sent."""

import time
from typing import Any

from tests.stack.traffic import Sent
from tools.backends.processes import Jaeger

PATIENCE_SECONDS = 60.0


def stored(jaeger: Jaeger, trace_id: str) -> list[str]:
    """The span ids of a trace, sorted; none when there is no such trace."""
    trace = jaeger.trace(trace_id)
    return sorted(span["spanID"] for span in trace["spans"]) if trace else []


def wait_until_stored(jaeger: Jaeger, sent: Sent) -> None:
    """Wait until exactly the sent spans are there: each once, none else."""
    expected = {trace_id: sorted(ids) for trace_id, ids in sent.spans.items()}
    found: dict[str, list[str]] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = {trace_id: stored(jaeger, trace_id) for trace_id in expected}
        if found == expected:
            return
        time.sleep(0.1)
    missing = {t: len(set(ids) - set(found[t])) for t, ids in expected.items()}
    raise AssertionError(f"missing by trace: {missing}; found {found}")


def spans_of(jaeger: Jaeger, sent: Sent) -> list[dict[str, Any]]:
    """The spans of the one trace that was sent, in Jaeger's JSON, with `tags` as a dictionary."""
    (trace_id,) = sent.spans
    trace = jaeger.trace(trace_id)
    assert trace is not None
    return [
        {**span, "tags": {tag["key"]: tag["value"] for tag in span["tags"]}}
        for span in trace["spans"]
    ]
