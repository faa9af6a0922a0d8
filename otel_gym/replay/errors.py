"""Every error of the replay room, one tree under `otel_gym.errors.ReplayError`.

ReplayError
├── CaptureError                 a response that cannot become a turn (not JSON, no output list, NaN, ...)
├── ContainerError               bytes that are not a snapshot we can restore; says where
│   ├── TruncatedContainer         shorter than it says
│   ├── DamagedContainer           a part does not have the digest it was written with
│   └── UnsupportedContainer       written by a newer version, or not a snapshot at all
├── ArchiveError                 a JSON archive (`__type__` envelopes) that cannot be read or written
├── HistoryStoreError            a history database that cannot be used
│   ├── DamagedHistory             a stored turn that does not have its digest, or lost its parent
│   └── UnknownHistory             no such rollout, attempt, branch or turn
├── PreparationError             a history that cannot be sent; raised before a call is charged
├── PolicyCallError              a policy call that cannot be used; carries the turn once it is captured
│   ├── PolicyCallBudgetExceeded   the rollout spent its calls; nothing was sent
│   ├── PolicyServerError          no usable answer came back
│   ├── UnsupportedClientCall      the model asked for a call that the client cannot execute
│   └── InvalidPolicyOutput        the text is not the structured output that was asked for
│       └── PolicyRefusal            the model refused (also beside valid JSON)
└── StrictExportError            a trajectory with gaps, refused by a strict export
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from otel_gym.errors import ReplayError

if TYPE_CHECKING:
    from otel_gym.replay.turn import Turn

__all__ = [
    "ArchiveError",
    "CaptureError",
    "ContainerError",
    "DamagedContainer",
    "DamagedHistory",
    "HistoryStoreError",
    "InvalidPolicyOutput",
    "PolicyCallBudgetExceeded",
    "PolicyCallError",
    "PolicyRefusal",
    "PolicyServerError",
    "PreparationError",
    "ReplayError",
    "StrictExportError",
    "TruncatedContainer",
    "UnknownHistory",
    "UnsupportedClientCall",
    "UnsupportedContainer",
]


class CaptureError(ReplayError):
    """A response that cannot become a turn; the text names the field."""


class ContainerError(ReplayError):
    """A snapshot that cannot be restored.

    `where` names the damaged part; `offset_bytes` is where that part starts in the container.
    """

    def __init__(self, reason: str, *, where: str, offset_bytes: int) -> None:
        super().__init__(f"snapshot: {where} at byte {offset_bytes}: {reason}")
        self.where = where
        self.offset_bytes = offset_bytes


class TruncatedContainer(ContainerError):
    """The container is shorter than its own header says."""


class DamagedContainer(ContainerError):
    """A part of the container differs from what was written."""


class UnsupportedContainer(ContainerError):
    """Not a snapshot, or one of a newer version."""


class ArchiveError(ReplayError):
    """A JSON archive that cannot be read or written; the text names the path inside it."""


class HistoryStoreError(ReplayError):
    """A history database that cannot be used."""


class DamagedHistory(HistoryStoreError):
    """A stored entry that does not verify; `node_id` is its row, or null when the file itself is broken."""

    def __init__(self, reason: str, *, node_id: int | None = None) -> None:
        super().__init__(reason)
        self.node_id = node_id


class UnknownHistory(HistoryStoreError):
    """No such rollout, attempt, branch or position."""


class PreparationError(ReplayError):
    """A history that cannot be sent. `index` is the position in the history, `field` the wrong field."""

    def __init__(self, index: int, field: str, reason: str) -> None:
        super().__init__(f"history[{index}].{field}: {reason}")
        self.index = index
        self.field = field


class PolicyCallError(ReplayError):
    """A policy call that cannot be used. `turn` is the captured answer, null when none was captured.

    `gap_code` is the condition that the rollout's gap list records.
    """

    gap_code = "transient"

    def __init__(self, message: str, *, turn: Turn | None = None) -> None:
        super().__init__(message)
        self.turn = turn


class PolicyCallBudgetExceeded(PolicyCallError):
    """The rollout has used all its policy calls; nothing was sent."""

    gap_code = "policy_budget_exceeded"


class PolicyServerError(PolicyCallError):
    """The server could not be reached, answered with an error status, with no usable response or a failed one.

    `status_code` is null when no answer came.
    """

    def __init__(
        self,
        message: str,
        *,
        status_code: int | None = None,
        timed_out: bool = False,
        turn: Turn | None = None,
    ) -> None:
        super().__init__(message, turn=turn)
        self.status_code = status_code
        if timed_out:
            self.gap_code = "timeout_exceeded"


class UnsupportedClientCall(PolicyCallError):
    """The answer holds a client-executed call that this client cannot answer; `item_type` says which."""

    gap_code = "non_trainable_terminal_output"

    def __init__(self, item_type: str, *, turn: Turn) -> None:
        super().__init__(
            f"the model asked for a {item_type}, which the client cannot execute", turn=turn
        )
        self.item_type = item_type


class InvalidPolicyOutput(PolicyCallError):
    """The assistant text is not the structured output that was asked for."""

    gap_code = "invalid_policy_output"


class PolicyRefusal(InvalidPolicyOutput):
    """The model refused, so its text counts as no structured output even where it is valid JSON."""


class StrictExportError(ReplayError):
    """A strict export met gaps. `gaps` are `(trajectory, code)` pairs."""

    def __init__(self, gaps: Iterable[tuple[str, str]]) -> None:
        self.gaps = sorted(set(gaps))
        listed = ", ".join(f"{trajectory}: {code}" for trajectory, code in self.gaps)
        super().__init__(f"strict export refuses trajectories with gaps ({listed})")
