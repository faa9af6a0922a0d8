"""Dispatch of rollouts to an agent, attempts, resume, and what was captured attached to each result."""

from otel_gym.rollouts.attach import ATTACHMENT_KEY, attach_model_calls, model_call_capture
from otel_gym.rollouts.collect import Collector, collect_rollouts
from otel_gym.rollouts.options import Collected, CollectOptions
from otel_gym.rollouts.progress import CollectProgress

__all__ = [
    "ATTACHMENT_KEY",
    "CollectOptions",
    "CollectProgress",
    "Collected",
    "Collector",
    "attach_model_calls",
    "collect_rollouts",
    "model_call_capture",
]
