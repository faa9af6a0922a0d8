"""Durable training metadata: histories that replay exactly, or say that they can't."""

from otel_gym.replay.archive import read_archive, write_archive
from otel_gym.replay.capture import capture_turn
from otel_gym.replay.container import HistoryEntry, restore, restore_file, snapshot
from otel_gym.replay.parts import HostedPart, Part, ReasoningPart, TextPart, ToolCallPart
from otel_gym.replay.policy_client import PolicyClient, PolicyReply
from otel_gym.replay.projection import Projection, project
from otel_gym.replay.response_facts import ResponseFacts
from otel_gym.replay.scope import ReplayScope
from otel_gym.replay.store import HistoryStore
from otel_gym.replay.turn import Turn

__all__ = [
    "HistoryEntry",
    "HistoryStore",
    "HostedPart",
    "Part",
    "PolicyClient",
    "PolicyReply",
    "Projection",
    "ReasoningPart",
    "ReplayScope",
    "ResponseFacts",
    "TextPart",
    "ToolCallPart",
    "Turn",
    "capture_turn",
    "project",
    "read_archive",
    "restore",
    "restore_file",
    "snapshot",
    "write_archive",
]
