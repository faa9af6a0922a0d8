"""otel-gym: model calls as durable records, and each record as one OpenTelemetry span of its rollout's trace."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from otel_gym.capture.metrics import (
        aggregate_model_call_records as aggregate_model_call_records,
    )
    from otel_gym.capture.record import CaptureRecord as CaptureRecord
    from otel_gym.capture.record import ModelCallRecord as ModelCallRecord
    from otel_gym.capture.record import build_model_call_record as build_model_call_record
    from otel_gym.capture.store import CaptureStore as CaptureStore
    from otel_gym.capture.store import (
        aggregate_model_call_metrics as aggregate_model_call_metrics,
    )
    from otel_gym.capture.store import read_model_call_records as read_model_call_records
    from otel_gym.correlation.run import Run as Run
    from otel_gym.errors import InvalidRolloutId as InvalidRolloutId
    from otel_gym.errors import OtelGymError as OtelGymError
    from otel_gym.rollouts.attach import attach_model_calls as attach_model_calls
    from otel_gym.rollouts.collect import Collector as Collector
    from otel_gym.rollouts.collect import collect_rollouts as collect_rollouts
    from otel_gym.rollouts.options import CollectOptions as CollectOptions
    from otel_gym.servers.agent import SimpleResponsesAPIAgent as SimpleResponsesAPIAgent
    from otel_gym.servers.base_model import SimpleResponsesAPIModel as SimpleResponsesAPIModel
    from otel_gym.servers.model import install_model_call_capture as install_model_call_capture
    from otel_gym.settings import Settings as Settings
    from otel_gym.settings import load_settings as load_settings

_HOMES: Final[dict[str, str]] = {
    "CaptureRecord": "otel_gym.capture.record",
    "CaptureStore": "otel_gym.capture.store",
    "CollectOptions": "otel_gym.rollouts.options",
    "Collector": "otel_gym.rollouts.collect",
    "InvalidRolloutId": "otel_gym.errors",
    "ModelCallRecord": "otel_gym.capture.record",
    "OtelGymError": "otel_gym.errors",
    "Run": "otel_gym.correlation.run",
    "Settings": "otel_gym.settings",
    "SimpleResponsesAPIAgent": "otel_gym.servers.agent",
    "SimpleResponsesAPIModel": "otel_gym.servers.base_model",
    "aggregate_model_call_metrics": "otel_gym.capture.store",
    "aggregate_model_call_records": "otel_gym.capture.metrics",
    "attach_model_calls": "otel_gym.rollouts.attach",
    "build_model_call_record": "otel_gym.capture.record",
    "collect_rollouts": "otel_gym.rollouts.collect",
    "install_model_call_capture": "otel_gym.servers.model",
    "load_settings": "otel_gym.settings",
    "read_model_call_records": "otel_gym.capture.store",
}
"""Where each public name lives; it is imported when it is first asked for, so that `import otel_gym` costs nothing."""

__all__ = [
    "CaptureRecord",
    "CaptureStore",
    "CollectOptions",
    "Collector",
    "InvalidRolloutId",
    "ModelCallRecord",
    "OtelGymError",
    "Run",
    "Settings",
    "SimpleResponsesAPIAgent",
    "SimpleResponsesAPIModel",
    "aggregate_model_call_metrics",
    "aggregate_model_call_records",
    "attach_model_calls",
    "build_model_call_record",
    "collect_rollouts",
    "install_model_call_capture",
    "load_settings",
    "read_model_call_records",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'otel_gym' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
