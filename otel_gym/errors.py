"""Every error that otel-gym raises, one tree.

OtelGymError
├── UsageProblem           a person's input is wrong: one clear line, exit code 2
│   └── SettingsError      a configuration key is wrong: names the key, its value and its file
├── InvalidRolloutId       a rollout id breaks the grammar (also a ValueError, as in NeMo Gym)
├── StoreError             the capture directory or a file in it
│   ├── CorruptRecordError   a line that is not a record, with file, line number and byte offset
│   └── StoreUnavailable     a record could not be made durable
├── DialectError           bytes that cannot be read as the dialect says (never raised into a model call)
│   └── EncodingError        a content encoding that is unknown, damaged or expands without bound
├── ExportError            a backend refused or could not be reached
└── ReplayError            see otel_gym.replay.errors
"""

from __future__ import annotations

from pathlib import Path


class OtelGymError(Exception):
    """Root of all errors raised by otel-gym."""


class UsageProblem(OtelGymError):
    """Input from a person that cannot be used; its text is the one line they are shown."""


class SettingsError(UsageProblem):
    """A configuration value that cannot be used."""


class InvalidRolloutId(OtelGymError, ValueError):
    """A rollout id that breaks the grammar of `otel_gym.correlation.rollout_id`."""


class StoreError(OtelGymError):
    """A capture directory or one of its files cannot be used."""


class CorruptRecordError(StoreError):
    """A line of a capture file that is not a record.

    Attributes: `path`; `line_number` (0-based, blank lines not counted); `offset_bytes` of the line's start.
    """

    def __init__(self, path: Path, line_number: int, offset_bytes: int, reason: str) -> None:
        super().__init__(f"{path}: line {line_number} at byte {offset_bytes}: {reason}")
        self.path = path
        self.line_number = line_number
        self.offset_bytes = offset_bytes
        self.reason = reason


class StoreUnavailable(StoreError):
    """A record could not be made durable; the text says why."""


class DialectError(OtelGymError):
    """Bytes that cannot be read as their dialect says."""


class ExportError(OtelGymError):
    """Spans or metrics that a backend refused, or a backend that could not be reached."""


class ReplayError(OtelGymError):
    """Root of the replay room's errors."""
