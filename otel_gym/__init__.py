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
    from otel_gym.servers.model import install_model_call_capture as install_model_call_capture
    from otel_gym.settings import Settings as Settings
    from otel_gym.settings import load_settings as load_settings

_HOMES: Final[dict[str, str]] = {
    "CaptureRecord": "otel_gym.capture.record",
    "CaptureStore": "otel_gym.capture.store",
    "InvalidRolloutId": "otel_gym.errors",
    "ModelCallRecord": "otel_gym.capture.record",
    "OtelGymError": "otel_gym.errors",
    "Run": "otel_gym.correlation.run",
    "Settings": "otel_gym.settings",
    "aggregate_model_call_metrics": "otel_gym.capture.store",
    "aggregate_model_call_records": "otel_gym.capture.metrics",
    "build_model_call_record": "otel_gym.capture.record",
    "install_model_call_capture": "otel_gym.servers.model",
    "load_settings": "otel_gym.settings",
    "read_model_call_records": "otel_gym.capture.store",
}
"""Where each public name lives; it is imported when it is first asked for, so that `import otel_gym` costs nothing."""

__all__ = [
    "CaptureRecord",
    "CaptureStore",
    "InvalidRolloutId",
    "ModelCallRecord",
    "OtelGymError",
    "Run",
    "Settings",
    "aggregate_model_call_metrics",
    "aggregate_model_call_records",
    "build_model_call_record",
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
