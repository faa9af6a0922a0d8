"""Reading traces back from Jaeger, over its stable v3 API or the older v1 one.

https://www.jaegertracing.io/docs/latest/apis/. The v3 answer is OTLP JSON; v1 has its own shape, with times in microseconds. Both are brought into one
form, and what v1 does not say (nanoseconds, the kind of a list) is left to the comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from otel_gym.errors import ExportError
from otel_gym.tracing.otlp_json import plain_pairs
from otel_gym.tracing.semconv import SCOPE_NAME

_KINDS: Final[Mapping[str, int]] = {
    "internal": 1,
    "server": 2,
    "client": 3,
    "producer": 4,
    "consumer": 5,
}
_JAEGER_NOTE: Final = "@jaeger@"
"""Begin of the attributes that Jaeger itself adds when it reads, such as its warnings."""
_V1_OWN_TAGS: Final = frozenset(
    {
        "span.kind",
        "error",
        "otel.scope.name",
        "otel.scope.version",
        "otel.status_code",
        "otel.status_description",
        "otel.library.name",
        "otel.library.version",
        "w3c.tracestate",
        "internal.span.format",
    }
)


@dataclass(slots=True)
class StoredLink:
    """A link as the backend has it."""

    trace_id: str
    span_id: str


@dataclass(slots=True)
class StoredSpan:
    """A span as the backend has it."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    is_error: bool
    description: str
    links: list[StoredLink] = field(default_factory=list)
    events: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    resource: dict[str, Any] = field(default_factory=dict)
    precision_ns: int = 1
    """What its times are rounded to: 1,000 over v1."""


class JaegerReader:
    """Traces of one Jaeger by its query URL, such as http://127.0.0.1:16686."""

    def __init__(self, url: str, *, timeout_s: float = 30.0, api: str | None = None) -> None:
        """`api` is `v1`, `v3`, or null to take v3 where the backend has it."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ExportError(f"Jaeger URL {url!r}: must be a URL such as http://127.0.0.1:16686")
        self.url = url.rstrip("/")
        self._client = httpx.Client(timeout=timeout_s)
        self._api = api

    def __enter__(self) -> JaegerReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives up the connection."""
        self._client.close()

    def spans(self, trace_id: str) -> list[StoredSpan]:
        """The bridge's own spans of a trace; those of other scopes (engine, agent) are left out. Raises `ExportError`."""
        if self._api is None:
            self._api = "v3" if self._get("/api/v3/services") is not None else "v1"
        if self._api == "v3":
            answer = self._get(f"/api/v3/traces/{trace_id}")
            return [] if answer is None else list(_from_v3(answer))
        answer = self._get(f"/api/traces/{trace_id}?raw=true")
        return [] if answer is None else list(_from_v1(answer))

    def _get(self, path: str) -> dict[str, Any] | None:
        """The JSON answer, null for 404."""
        try:
            response = self._client.get(self.url + path)
            if response.status_code == 404:
                return None
            response.raise_for_status()
            value = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise ExportError(f"{self.url}: cannot be read: {error}") from error
        if not isinstance(value, dict):
            raise ExportError(f"{self.url}{path}: answered with something that is no Jaeger API")
        return value


def _from_v3(answer: Mapping[str, Any]) -> Iterator[StoredSpan]:
    data = answer.get("result", answer)
    for part in data.get("resourceSpans", ()):
        resource = plain_pairs(part.get("resource", {}).get("attributes", ()))
        for scope_spans in part.get("scopeSpans", ()):
            if scope_spans.get("scope", {}).get("name") != SCOPE_NAME:
                continue
            for span in scope_spans.get("spans", ()):
                status = span.get("status", {})
                yield StoredSpan(
                    name=span.get("name", ""),
                    trace_id=span["traceId"],
                    span_id=span["spanId"],
                    parent_span_id=span.get("parentSpanId", ""),
                    kind=_kind(span.get("kind", 0)),
                    start_ns=int(span.get("startTimeUnixNano", 0)),
                    end_ns=int(span.get("endTimeUnixNano", 0)),
                    attributes={
                        key: value
                        for key, value in plain_pairs(span.get("attributes", ())).items()
                        if not key.startswith(_JAEGER_NOTE)
                    },
                    is_error=status.get("code") in (2, "STATUS_CODE_ERROR"),
                    description=status.get("message", ""),
                    links=[
                        StoredLink(link["traceId"], link["spanId"])
                        for link in span.get("links", ())
                    ],
                    events=[
                        (
                            event.get("name", ""),
                            int(event.get("timeUnixNano", 0)),
                            plain_pairs(event.get("attributes", ())),
                        )
                        for event in span.get("events", ())
                    ],
                    resource=resource,
                )


def _from_v1(answer: Mapping[str, Any]) -> Iterator[StoredSpan]:
    for trace in answer.get("data") or ():
        for span in trace.get("spans", ()):
            tags = {tag["key"]: tag["value"] for tag in span.get("tags", ())}
            scope = tags.get("otel.scope.name", tags.get("otel.library.name"))
            if scope != SCOPE_NAME:
                continue
            process = trace.get("processes", {}).get(span.get("processID"), {})
            references = span.get("references", ())
            parents = [each for each in references if each.get("refType") == "CHILD_OF"]
            start_ns = int(span["startTime"]) * 1000
            yield StoredSpan(
                name=span.get("operationName", ""),
                trace_id=span["traceID"],
                span_id=span["spanID"],
                parent_span_id=parents[0]["spanID"] if parents else "",
                kind=_KINDS.get(str(tags.get("span.kind", "internal")), 0),
                start_ns=start_ns,
                end_ns=start_ns + int(span["duration"]) * 1000,
                attributes={key: value for key, value in tags.items() if key not in _V1_OWN_TAGS},
                is_error=tags.get("otel.status_code") == "ERROR" or tags.get("error") is True,
                description=str(tags.get("otel.status_description", "")),
                links=[
                    StoredLink(each["traceID"], each["spanID"])
                    for each in references
                    if each.get("refType") != "CHILD_OF"
                ],
                events=[_event_of_v1(log) for log in span.get("logs", ())],
                resource={
                    "service.name": process.get("serviceName"),
                    **{tag["key"]: tag["value"] for tag in process.get("tags", ())},
                },
                precision_ns=1000,
            )


def _event_of_v1(log: Mapping[str, Any]) -> tuple[str, int, dict[str, Any]]:
    fields = {each["key"]: each["value"] for each in log.get("fields", ())}
    return str(fields.pop("event", "")), int(log.get("timestamp", 0)) * 1000, fields


def _kind(value: object) -> int:
    if isinstance(value, int):
        return value
    return _KINDS.get(str(value).removeprefix("SPAN_KIND_").lower(), 0)
