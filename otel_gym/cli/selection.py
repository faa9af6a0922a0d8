"""Which rollouts of a directory a command is about; a name that fits none must not pass for a clean answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from otel_gym.errors import UsageProblem

if TYPE_CHECKING:
    from otel_gym.tracing.backfill import Selection


def chosen_rollouts(root: Path, selection: Selection) -> list[tuple[str, int]]:
    """(rollout id, size in bytes) of what was asked for. Raises `UsageProblem` where the directory has none of it, or not all."""
    from otel_gym.tracing.backfill import rollouts_of

    chosen = rollouts_of(root, selection)
    missing = sorted((selection.rollout_ids or frozenset()) - {name for name, _ in chosen})
    if missing:
        raise UsageProblem(f"--rollout {missing[0]}: {root} has no such rollout")
    if not chosen:
        raise UsageProblem(f"{root}: has no .capture.jsonl files")
    return chosen
