"""The endpoints of both versions of the API."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from otel_gym.errors import OtelGymError, UsageProblem
from otel_gym.tracing.otlp_json import request_json
from otel_gym.viewer.index.follower import Follower
from otel_gym.viewer.index.indexer import Index
from otel_gym.viewer.jaeger.query import trace_id_of, v1_query, v3_query
from otel_gym.viewer.jaeger.search import Found, Search
from otel_gym.viewer.jaeger.summary import summary_json
from otel_gym.viewer.jaeger.traces import Trace, Traces
from otel_gym.viewer.jaeger.v1_json import envelope, trace_json
from otel_gym.viewer.kept import Kept

_LOOKBACK_MS: Final = 24 * 3600 * 1000
"""How far back dependencies go where the request does not say, in milliseconds."""

Endpoint = Callable[[Request], Response]


def jaeger_routes(index: Index, follower: Follower) -> list[Route]:
    """Every route of the API."""
    api = JaegerApi(index, follower)
    routes: list[tuple[str, Endpoint, Endpoint]] = [
        ("/api/services", api.services, api.v1),
        ("/api/services/{service:path}/operations", api.service_operations, api.v1),
        ("/api/operations", api.operations, api.v1),
        ("/api/traces", api.search, api.v1),
        ("/api/traces/{trace_id}", api.trace, api.v1),
        ("/api/dependencies", api.dependencies, api.v1),
        ("/api/v3/services", api.v3_services, api.v3),
        ("/api/v3/operations", api.v3_operations, api.v3),
        ("/api/v3/traces", api.v3_search, api.v3),
        ("/api/v3/traces/{trace_id}", api.v3_trace, api.v3),
        ("/api/v3/trace-summaries", api.v3_summaries, api.v3),
    ]
    return [Route(path, _guarded(api, endpoint, wrap)) for path, endpoint, wrap in routes]


class JaegerApi:
    """Endpoints over one run."""

    def __init__(self, index: Index, follower: Follower) -> None:
        self._index = index
        self._follower = follower
        self._traces = Traces(index)
        self._search = Search(self._traces)
        self._operations = Kept(index, "operations", self._compute_operations)
        follower.after_refresh.append(self._operations.get)

    def attend(self) -> None:
        """Somebody asks."""
        self._follower.attend()

    # -- v1

    def services(self, request: Request) -> Response:
        """The run's service, once there is a span of it."""
        names = self._services()
        return _json(envelope(names, total=len(names)))

    def service_operations(self, request: Request) -> Response:
        """Span names of a service."""
        names = sorted({name for name, _ in self._operations_of(request.path_params["service"])})
        return _json(envelope(names, total=len(names)))

    def operations(self, request: Request) -> Response:
        """Span names and kinds of a service."""
        service = request.query_params.get("service", "")
        if not service:
            raise UsageProblem("parameter 'service' is required")
        found = self._operations_of(service, request.query_params.get("spanKind", ""))
        data = [{"name": name, "spanKind": kind} for name, kind in found]
        return _json(envelope(data, total=len(data)))

    def search(self, request: Request) -> Response:
        """Traces by service, operation, tags, time and duration, or by their ids."""
        ids = request.query_params.getlist("traceID")
        if ids:
            traces, errors = [], []
            for given in ids[:100]:
                trace = self._traces.trace(trace_id_of(given))
                if trace is None:
                    errors.append({"msg": "trace not found", "traceID": given})
                else:
                    traces.append(trace)
            return self._v1_traces(traces, errors)
        found = self._search.find(v1_query(request.query_params))
        return self._v1_traces(found.traces, _unfinished(found))

    def trace(self, request: Request) -> Response:
        """One trace."""
        trace = self._traces.trace(trace_id_of(request.path_params["trace_id"]))
        if trace is None:
            return self.v1_problem("trace not found", 404)
        return self._v1_traces([trace], [])

    def dependencies(self, request: Request) -> Response:
        """Calls between services; all spans of a run are of one service."""
        end = _millis(request, "endTs", int(time.time() * 1000))
        lookback = _millis(request, "lookback", _LOOKBACK_MS)
        count = self._index.database.tuples(
            "SELECT sum(calls) FROM rollouts WHERE first_us > ? AND completed_at < ?",
            (max((end - lookback) * 1000, -(2**63)), end / 1000),
        )[0][0]
        service = request.query_params.get("service", "")
        links = (
            [{"parent": self._traces.service, "child": self._traces.service, "callCount": count}]
            if count and service in ("", self._traces.service)
            else []
        )
        return _json(envelope(links))

    # -- v3

    def v3_services(self, request: Request) -> Response:
        """As `services`."""
        return _json({"services": self._services()})

    def v3_operations(self, request: Request) -> Response:
        """As `operations`."""
        values = request.query_params
        kind = values.get("span_kind") or values.get("spanKind") or ""
        found = self._operations_of(values.get("service", ""), kind)
        return _json({"operations": [{"name": name, "spanKind": kind} for name, kind in found]})

    def v3_search(self, request: Request) -> Response:
        """As `search`, in OTLP JSON."""
        return self._v3_traces(self._search.find(v3_query(request.query_params)).traces)

    def v3_trace(self, request: Request) -> Response:
        """As `trace`, in OTLP JSON."""
        trace = self._traces.trace(trace_id_of(request.path_params["trace_id"]))
        return self._v3_traces([trace] if trace else [])

    def v3_summaries(self, request: Request) -> Response:
        """As `search`, in a few figures a trace."""
        found = self._search.find(v3_query(request.query_params, paged=True))
        service = self._traces.service
        return _json({"summaries": [summary_json(trace, service) for trace in found.traces]})

    # -- inside

    def v1_problem(self, text: str, status: int) -> Response:
        """An error as v1 says it."""
        return _json(envelope(None, errors=[{"code": status, "msg": text}]), status)

    def v1(self, request: Request) -> Response:
        """The error that v1 gives for a bad request, whose text is in the request's state."""
        return self.v1_problem(*request.state.problem)

    def v3(self, request: Request) -> Response:
        """The same for v3."""
        text, status = request.state.problem
        return _json({"error": {"httpCode": status, "message": text}}, status)

    def _services(self) -> list[str]:
        found = self._index.database.tuples("SELECT 1 FROM rollouts LIMIT 1")
        return [self._traces.service] if found else []

    def _operations_of(self, service: str, kind: str = "") -> list[tuple[str, str]]:
        if service != self._traces.service:
            return []
        return [one for one in self._operations.get() if kind in ("", one[1])]

    def _compute_operations(self) -> list[tuple[str, str]]:
        names = self._index.database.tuples("SELECT DISTINCT span_name FROM calls")
        agents = self._index.database.tuples("SELECT DISTINCT agent FROM rollouts")
        roots = {f"invoke_agent {agent}" if agent else "invoke_agent" for (agent,) in agents}
        return sorted(
            [(name, "client") for (name,) in names] + [(root, "internal") for root in roots]
        )

    def _v1_traces(self, traces: list[Trace], errors: list[dict[str, Any]]) -> Response:
        data = [trace_json(trace, self._traces.resource) for trace in traces]
        return _json(envelope(data, errors=errors or None))

    def _v3_traces(self, traces: list[Trace]) -> Response:
        if not traces:
            return _json({"error": {"httpCode": 404, "message": "No traces found"}}, 404)
        run = self._index.run.model_copy(update={"resource": self._traces.resource})
        found: list[Any] = []
        for trace in traces:
            found.extend(request_json(trace.spans, run, self._index.options)["resourceSpans"])
        return _json({"result": {"resourceSpans": found}})


def _guarded(api: JaegerApi, endpoint: Endpoint, wrap: Endpoint) -> Endpoint:
    """The endpoint with errors in the shape of its version."""

    def answer(request: Request) -> Response:
        api.attend()
        try:
            return endpoint(request)
        except UsageProblem as problem:
            request.state.problem = (str(problem), 400)
        except (OtelGymError, OSError) as error:
            request.state.problem = (str(error), 500)
        return wrap(request)

    return answer


def _unfinished(found: Found) -> list[dict[str, Any]]:
    if found.complete:
        return []
    text = f"the search ended after {found.looked_at} rollouts; narrow it by time or by tags"
    return [{"code": 206, "msg": text}]


def _millis(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"-?\d{1,15}", text, re.ASCII):
        raise UsageProblem(f"unable to parse param '{name}': {text[:60]!r} is no whole number")
    return int(text)


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")
