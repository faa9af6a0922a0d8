"""What a person may choose about the viewer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from otel_gym.tracing.options import SpanOptions


@dataclass(frozen=True, slots=True)
class ViewerOptions:
    """The choices of one viewer."""

    directory: Path
    """The capture directory."""
    jaeger_ui: str | None = None
    """Base URL of a Jaeger UI to link to, without a trailing slash; null for no links."""
    token: str | None = None
    """Secret that every request must carry; null asks for none, which is right on loopback only."""
    hosts: frozenset[str] = frozenset()
    """Host names that requests may name besides loopback ones, lower case, without port."""
    keep_index: bool = True
    """Whether the index may stand beside the files; else, or where they are read-only, it is in memory."""
    span_options: SpanOptions = field(default_factory=SpanOptions)
    """How records become spans for the Jaeger-compatible API."""
