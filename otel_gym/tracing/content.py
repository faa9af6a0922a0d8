"""Message content on spans and events, where a person asked for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.span_data import SpanData

if TYPE_CHECKING:
    from otel_gym.tracing.spans import RecordPlace


def add_content(
    span: SpanData,
    dialect: str,
    request: Mapping[str, Any],
    response: Mapping[str, Any],
    place: RecordPlace,
    options: SpanOptions,
) -> None:
    """Adds the content of a call."""
