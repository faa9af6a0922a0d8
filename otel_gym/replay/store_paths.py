"""Branches and the paths they lead to: reading them verified, extending them, moving their names."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from otel_gym.replay.container import HistoryEntry
from otel_gym.replay.errors import DamagedHistory, HistoryStoreError, UnknownHistory
from otel_gym.replay.prompt_chain import PromptChain
from otel_gym.replay.store_rows import branch_seal, chained, insert_entry
from otel_gym.replay.turn import Turn

# UNION, not UNION ALL: a damaged parent that makes a circle must not make an endless path.
_PATH_TO_ROOT: Final = """
    WITH RECURSIVE path(id, parent, depth) AS (
        SELECT id, parent, depth FROM node WHERE id = ?
        UNION
        SELECT node.id, node.parent, node.depth FROM node JOIN path ON node.id = path.parent
    )
    SELECT id, node.parent, node.digest, node.chain, node.depth, node.kind
    FROM path JOIN node USING (id) ORDER BY node.depth
"""

BranchKey: TypeAlias = tuple[str, int, str]
"""Rollout id, attempt, branch name."""


_ATTEMPTS: Final = range(1 << 63)


def branch_key(rollout_id: str, attempt: int, branch: str) -> BranchKey:
    """The key of a branch; `HistoryStoreError` where it is none that a database can hold."""
    for name, text in (("rollout id", rollout_id), ("branch", branch)):
        if not isinstance(text, str) or not _is_unicode(text):
            raise HistoryStoreError(f"the {name} {text!r} is no text")
    if type(attempt) is not int or attempt not in _ATTEMPTS:
        raise HistoryStoreError(f"the attempt {attempt!r} is no count that fits 63 bits")
    return rollout_id, attempt, branch


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Node(NamedTuple):
    """An entry on a path: its row id, the digests of the entry and of the whole path up to it, its kind."""

    id: int
    digest: str
    chain: str
    kind: str


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of one attempt of a rollout. `entries` counts turns and messages, `turns` turns only.

    `node_id` is the last entry's row, null for an empty history; `updated_at` is UTC Unix seconds of the
    last checkpoint.
    """

    rollout_id: str
    attempt: int
    name: str
    node_id: int | None
    entries: int
    turns: int
    updated_at: float

    @property
    def key(self) -> BranchKey:
        return self.rollout_id, self.attempt, self.name


class BranchPaths:
    """The branches of one open database. Not locked: the store calls it inside its transactions."""

    def __init__(self, connection: sqlite3.Connection, label: str) -> None:
        self._connection = connection
        self._label = label
        self._known: dict[BranchKey, list[Node]] = {}

    def exists(self, key: BranchKey) -> bool:
        row = self._connection.execute(
            "SELECT 1 FROM branch WHERE rollout_id = ? AND attempt = ? AND name = ?", key
        ).fetchone()
        return row is not None

    def listed(self, rollout_id: str | None) -> list[Branch]:
        """All branches, or one rollout's, in order of their keys."""
        where = "" if rollout_id is None else " WHERE rollout_id = ?"
        rows = self._connection.execute(
            f"SELECT rollout_id, attempt, name, node_id, updated_at FROM branch{where}"
            " ORDER BY rollout_id, attempt, name",
            () if rollout_id is None else (rollout_id,),
        ).fetchall()
        found = []
        for rollout, attempt, name, node, updated_at in rows:
            kinds = [row[-1] for row in self._connection.execute(_PATH_TO_ROOT, (node,))]
            turns = kinds.count("turn")
            found.append(Branch(rollout, attempt, name, node, len(kinds), turns, updated_at))
        return found

    def of(self, key: BranchKey) -> list[Node]:
        """The nodes of a branch from its root; from memory where nobody else moved the branch.

        Raises `UnknownHistory` or `DamagedHistory`.
        """
        row = self._connection.execute(
            "SELECT node_id, updated_at, seal FROM branch"
            " WHERE rollout_id = ? AND attempt = ? AND name = ?",
            key,
        ).fetchone()
        if row is None:
            rollout_id, attempt, name = key
            raise UnknownHistory(
                f"{self._label}: no branch {name!r} of rollout {rollout_id!r}, attempt {attempt}"
            )
        tip, updated_at, seal = row
        path = self._known.get(key)
        if path is None or (path[-1].id if path else None) != tip:
            path = self._read(tip)
        if branch_seal(key, path[-1].chain if path else "", updated_at) != seal:
            raise DamagedHistory(f"{self._label}: the branch {key} is damaged", node_id=tip)
        return path

    def _read(self, tip: int | None) -> list[Node]:
        path: list[Node] = []
        if tip is None:
            return path
        chain = ""
        rows = self._connection.execute(_PATH_TO_ROOT, (tip,))
        for node, parent, digest, stored, depth, kind in rows:
            chain = chained(chain, digest)
            before = path[-1].id if path else None
            if depth != len(path) or parent != before or chain != stored:
                raise DamagedHistory(f"{self._label}: node {node} lost its parent", node_id=node)
            path.append(Node(node, digest, chain, kind))
        if not path or path[-1].id != tip:
            raise DamagedHistory(f"{self._label}: node {tip} is not there", node_id=tip)
        return path

    def extend(
        self, path: list[Node], history: Sequence[HistoryEntry], digests: Sequence[str]
    ) -> list[Node]:
        """The path of a whole history whose first entries are `path`; writes the others."""
        extended = list(path)
        turns = [entry for entry in history[: len(path)] if isinstance(entry, Turn)]
        prompts = PromptChain.after(turns)
        for depth in range(len(path), len(history)):
            parent = extended[-1] if extended else None
            entry, digest = history[depth], digests[depth]
            chain = chained(parent.chain if parent else "", digest)
            node = insert_entry(
                self._connection,
                parent.id if parent else None,
                depth,
                entry,
                (digest, chain),
                prompts,
            )
            kind = "turn" if isinstance(entry, Turn) else "message"
            extended.append(Node(node, digest, chain, kind))
        return extended

    def point(self, key: BranchKey, path: list[Node]) -> None:
        """Let a branch, new or not, lead to the end of a path."""
        tip = path[-1] if path else None
        now = time.time()
        seal = branch_seal(key, tip.chain if tip else "", now)
        self._connection.execute(
            "INSERT INTO branch (rollout_id, attempt, name, node_id, updated_at, seal)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (rollout_id, attempt, name) DO UPDATE SET"
            " node_id = excluded.node_id, updated_at = excluded.updated_at, seal = excluded.seal",
            (*key, tip.id if tip else None, now, seal),
        )

    def remember(self, key: BranchKey, path: list[Node]) -> None:
        """Keep a committed path, so that the next checkpoint need not read it."""
        self._known[key] = path
