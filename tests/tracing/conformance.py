"""Checks a span against the convention tables. Other rooms' tests may call `assert_conforms` with the spans they make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import orjson

from otel_gym.tracing.convention import Attribute
from otel_gym.tracing.semconv import deprecated_names, known_attributes
from otel_gym.tracing.semconv_own import TEMPLATES
from otel_gym.tracing.span_data import CLIENT, ERROR, INTERNAL, SpanData
from tests.tracing.content_schemas import SCHEMAS

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "double": (float,),
    "boolean": (bool,),
}
VALIDATORS = {key: jsonschema.Draft202012Validator(schema) for key, schema in SCHEMAS.items()}
EVENTS = {"gen_ai.evaluation.result", "gen_ai.client.inference.operation.details"}


def problems(span: SpanData, versions: tuple[str, ...]) -> Iterator[str]:
    """Everything in which `span` breaks the conventions `versions`."""
    if span.kind not in (CLIENT, INTERNAL):
        yield f"kind {span.kind} is neither CLIENT nor INTERNAL"
    span_type = "inference" if span.kind == CLIENT else "invoke_agent"
    known = known_attributes(versions)
    deprecated = deprecated_names(versions)
    for key, value in span.attributes.items():
        if key in deprecated:
            yield f"{key}: deprecated, use {deprecated[key]}"
            continue
        attribute = known.get(key) or _template(key)
        if attribute is None:
            yield f"{key}: unknown name"
            continue
        if span_type not in attribute.spans and _template(key) is None:
            yield f"{key}: does not belong on {span_type}"
        yield from _value_problems(key, value, attribute)
    for key, attribute in known.items():
        if attribute.level == "required" and span_type in attribute.spans:
            if key == "otel_gym.record.offset" and span_type != "inference":
                continue
            if key not in span.attributes:
                yield f"{key}: required and missing"
    yield from _shape_problems(span)


def assert_conforms(
    span: SpanData, versions: tuple[str, ...] = ("genai-0.1", "genai-1.41")
) -> None:
    """Fails with every problem of the span."""
    found = list(problems(span, versions))
    assert not found, f"{span.name}: " + "; ".join(found)


def _template(key: str) -> Attribute | None:
    return next((each for prefix, each in TEMPLATES.items() if key.startswith(prefix)), None)


def _value_problems(key: str, value: Any, attribute: Attribute) -> Iterator[str]:
    if attribute.type == "string[]":
        if not isinstance(value, list) or not all(type(item) is str for item in value):
            yield f"{key}: {value!r} is no list of strings"
    elif attribute.type != "any" and type(value) not in TYPES[attribute.type]:
        yield f"{key}: {value!r} is no {attribute.type}"
    if attribute.enum and not attribute.open_enum and value not in attribute.enum:
        yield f"{key}: {value!r} is none of {attribute.enum}"
    if key in SCHEMAS:
        try:
            content = orjson.loads(value)
        except (orjson.JSONDecodeError, TypeError) as error:
            yield f"{key}: is no JSON text: {error}"
        else:
            for found in VALIDATORS[key].iter_errors(content):
                yield f"{key}: breaks its schema: {found.message[:200]}"


def _shape_problems(span: SpanData) -> Iterator[str]:
    attributes = span.attributes
    subject = "gen_ai.request.model" if span.kind == CLIENT else "gen_ai.agent.name"
    operation = attributes.get("gen_ai.operation.name")
    expected = f"{operation} {attributes[subject]}" if subject in attributes else str(operation)
    if span.name != expected:
        yield f"name {span.name!r} should be {expected!r}"
    failed = span.status.code == ERROR
    if failed != ("error.type" in attributes):
        yield "error.type and status ERROR do not come together"
    if not failed and span.status.description:
        yield "a description without an error"
    if "server.address" not in attributes and "server.port" in attributes:
        yield "server.port without server.address"
    if attributes.get("gen_ai.request.stream", True) is not True:
        yield "gen_ai.request.stream is set although it is not true"
    for part in ("cache_read.input_tokens", "cache_write.input_tokens", "reasoning.output_tokens"):
        if attributes.get(f"gen_ai.usage.{part}") == 0:
            yield f"gen_ai.usage.{part}: a part of 0 is left out"
    if not re.fullmatch(r"[0-9a-f]{32}", span.trace_id) or span.trace_id == "0" * 32:
        yield f"trace id {span.trace_id!r}"
    if not re.fullmatch(r"[0-9a-f]{16}", span.span_id) or span.span_id == "0" * 16:
        yield f"span id {span.span_id!r}"
    if span.end_ns < span.start_ns:
        yield "ends before it starts"
    for event in span.events:
        if event.name not in EVENTS:
            yield f"event {event.name}: unknown"
        for key, value in event.attributes.items():
            if key in SCHEMAS and not isinstance(value, str):
                for found in VALIDATORS[key].iter_errors(value):
                    yield f"event {event.name}: {key}: {found.message[:200]}"
