"""Traces in the JSON of `GET /api/v3/trace-summaries`, by which Jaeger's UI searches from 2.19 on.

https://github.com/jaegertracing/jaeger-idl/blob/main/proto/api_v3/query_service.proto (`TraceSummary`); times are nanoseconds, as decimal strings.
"""

from __future__ import annotations

from typing import Any

from otel_gym.tracing.span_data import ERROR
from otel_gym.viewer.jaeger.traces import Trace


def summary_json(trace: Trace, service: str) -> dict[str, Any]:
    """One trace, whose spans are all of one service. Counts of 0 are written out: an optional field in the protocol, a required one for some clients."""
    present = {span.span_id for span in trace.spans}
    roots = [span for span in trace.spans if not span.parent_span_id]
    root = min(roots, key=lambda span: span.start_ns, default=None)
    spans, errors = len(trace.spans), sum(span.status.code == ERROR for span in trace.spans)
    return {
        "traceId": trace.trace_id,
        "rootServiceName": service if root else "",
        "rootOperationName": root.name if root else "",
        "minStartTimeUnixNano": str(min(span.start_ns for span in trace.spans)),
        "maxEndTimeUnixNano": str(max(span.end_ns for span in trace.spans)),
        "spanCount": spans,
        "errorSpanCount": errors,
        "orphanSpanCount": sum(
            bool(span.parent_span_id) and span.parent_span_id not in present for span in trace.spans
        ),
        "services": [{"name": service, "spanCount": spans, "errorSpanCount": errors}],
    }
