"""The gap codes: conditions under which a rollout's history is not the policy's exact history.

A rollout's gaps are a set. A code says that a condition occurred, never how often, and never that
training metadata existed.

foreign_turn_projected_portable         a turn was sent as public text and calls: its scope differs or is
                                        null, its native items are gone or incomplete, or its public
                                        fields disagree with them
public_assistant_metadata_unavailable   the history held an assistant's words, reasoning or calls as plain
                                        dictionaries
policy_budget_exceeded                  the rollout wanted more policy calls than it may make
invalid_policy_output                   a refusal, or text that is not the structured output asked for
non_trainable_terminal_output           the last answer asked for a call that the client cannot execute
timeout_exceeded                        a policy call timed out
transient                               a policy call failed in transport or at the server
"""

from __future__ import annotations

from typing import Final

FOREIGN_TURN: Final = "foreign_turn_projected_portable"
PUBLIC_ASSISTANT: Final = "public_assistant_metadata_unavailable"
BUDGET_EXCEEDED: Final = "policy_budget_exceeded"
INVALID_OUTPUT: Final = "invalid_policy_output"
NON_TRAINABLE_OUTPUT: Final = "non_trainable_terminal_output"
TIMEOUT: Final = "timeout_exceeded"
TRANSIENT: Final = "transient"

GAP_CODES: Final = frozenset(
    {
        FOREIGN_TURN,
        PUBLIC_ASSISTANT,
        BUDGET_EXCEEDED,
        INVALID_OUTPUT,
        NON_TRAINABLE_OUTPUT,
        TIMEOUT,
        TRANSIENT,
    }
)
"""Every code that this room records."""
