"""The rollout id on an agent's own spans. Importing this module loads the OpenTelemetry SDK."""

from __future__ import annotations

from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor

from otel_gym.capture.current import current_rollout_id

ROLLOUT_ID_ATTRIBUTE: Final = "otel_gym.rollout.id"


class RolloutIdSpanProcessor(SpanProcessor):
    """Sets `otel_gym.rollout.id` on every span that is started inside a rollout; add it to a `TracerProvider`."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        rollout_id = current_rollout_id()
        if rollout_id is not None:
            span.set_attribute(ROLLOUT_ID_ATTRIBUTE, rollout_id)
