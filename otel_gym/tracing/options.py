"""What a person may choose about how a record becomes a span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from otel_gym.settings import Settings

ContentMode = Literal["NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"]


@dataclass(frozen=True, slots=True)
class SpanOptions:
    """The choices that change a span. Equal options and an equal record always give an equal span."""

    semconv: tuple[str, ...] = ("genai-0.1", "genai-1.41")
    """Convention versions; the first is primary, the others add the names in which they differ."""
    content: ContentMode = "NO_CONTENT"
    """Where message content goes; variable OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT."""
    span_max_bytes: int = 64 * 1024
    """Budget of one span's attributes and events, in bytes."""

    @property
    def content_on_span(self) -> bool:
        """Whether content becomes span attributes."""
        return self.content in ("SPAN_ONLY", "SPAN_AND_EVENT")

    @property
    def content_on_event(self) -> bool:
        """Whether content becomes a span event."""
        return self.content in ("EVENT_ONLY", "SPAN_AND_EVENT")


def span_options(settings: Settings) -> SpanOptions:
    """The options that `settings` asks for."""
    bridge = settings.otel_gym
    return SpanOptions(
        semconv=tuple(bridge.semconv),
        content=settings.content_capture,
        span_max_bytes=bridge.span_max_bytes,
    )
