"""The rows of a history database: one entry in and out. See `docs/replay.md` for the tables."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any, Final

import numpy as np

from otel_gym.replay.column_making import array_of
from otel_gym.replay.columns import Array, digest_of
from otel_gym.replay.container import HistoryEntry
from otel_gym.replay.errors import CaptureError
from otel_gym.replay.json_values import dump_json, load_json
from otel_gym.replay.native import NativeItems
from otel_gym.replay.prompt_chain import PromptChain
from otel_gym.replay.turn import Turn, turn_from_description

SCHEMA: Final = (
    """CREATE TABLE node (
        id INTEGER PRIMARY KEY,
        parent INTEGER REFERENCES node (id),
        depth INTEGER NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('turn', 'message')),
        digest TEXT NOT NULL,
        chain TEXT NOT NULL,
        value BLOB NOT NULL,
        head BLOB,
        mark TEXT
    )""",
    """CREATE TABLE column_data (
        node_id INTEGER NOT NULL REFERENCES node (id),
        position INTEGER NOT NULL,
        description TEXT NOT NULL,
        data BLOB NOT NULL
    )""",
    "CREATE INDEX column_of_node ON column_data (node_id, position)",
    """CREATE TABLE branch (
        rollout_id TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        name TEXT NOT NULL,
        node_id INTEGER REFERENCES node (id),
        updated_at REAL NOT NULL,
        seal TEXT NOT NULL,
        PRIMARY KEY (rollout_id, attempt, name)
    )""",
)


def entry_digest(index: int, entry: HistoryEntry) -> str:
    """SHA-256, in hex, of an entry; `CaptureError` where it has no JSON value."""
    if isinstance(entry, Turn):
        return entry.digest
    try:
        return hashlib.sha256(dump_json(entry)).hexdigest()
    except ValueError as error:
        raise CaptureError(f"history[{index}]: {error}") from error


def chained(parent_chain: str, digest: str) -> str:
    """The digest of an entry together with everything before it; the root's parent chain is empty."""
    return hashlib.sha256(f"{parent_chain} {digest}".encode()).hexdigest()


def branch_seal(key: tuple[str, int, str], chain: str, updated_at: float) -> str:
    """The digest of a branch's own row and of all that it leads to."""
    return hashlib.sha256(dump_json([*key, chain, updated_at])).hexdigest()


def insert_entry(
    connection: sqlite3.Connection,
    parent: int | None,
    depth: int,
    entry: HistoryEntry,
    digests: tuple[str, str],
    chain: PromptChain,
) -> int:
    """Write one entry, with its own and its chained digest, after its parent; return its node id."""
    head, mark = None, None
    if isinstance(entry, Turn):
        kind, value = "turn", dump_json(entry.description())
        if entry.native_items is not None:
            head, mark = entry.native_items.head, entry.native_items.mark
    else:
        kind, value = "message", dump_json(entry)
    node = connection.execute(
        "INSERT INTO node (parent, depth, kind, digest, chain, value, head, mark)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (parent, depth, kind, *digests, value, head, mark),
    ).lastrowid
    assert node is not None
    if isinstance(entry, Turn):
        for position, stored in enumerate(chain.stored(entry)):
            connection.execute(
                "INSERT INTO column_data (node_id, position, description, data) VALUES (?, ?, ?, ?)",
                (
                    node,
                    position,
                    dump_json(stored.description()).decode(),
                    np.ascontiguousarray(stored.data).data.cast("B"),
                ),
            )
    return node


def read_entry(connection: sqlite3.Connection, node: int, chain: PromptChain) -> HistoryEntry:
    """The entry of a node, verified; ValueError, KeyError or TypeError where it is damaged."""
    kind, digest, value, head, mark = connection.execute(
        "SELECT kind, digest, value, head, mark FROM node WHERE id = ?", (node,)
    ).fetchone()
    if kind not in ("turn", "message"):
        raise ValueError(f"no such kind: {kind!r}")
    if kind == "message":
        if hashlib.sha256(value).hexdigest() != digest:
            raise ValueError("the digest of the message differs")
        message: dict[str, object] = load_json(value)
        return message
    native = None
    described: list[dict[str, Any]] = []
    if head is not None:
        arrays = []
        for text, data in connection.execute(
            "SELECT description, data FROM column_data WHERE node_id = ? ORDER BY position",
            (node,),
        ):
            described.append(load_json(text))
            arrays.append(_verified(described[-1], data))
        native = NativeItems.stored(head, mark, chain.read(described, arrays))
    turn = turn_from_description(load_json(value), native)
    held = [(item, field) for item in range(turn.item_count) for field in turn.columns_of(item)]
    if turn.digest != digest or held != [(d["item"], d["field"]) for d in described]:
        raise ValueError("the digest of the turn differs")
    return turn


def _verified(described: dict[str, Any], data: bytes) -> Array:
    array = array_of(described["dtype"], data)
    if digest_of(array) != described.get("stored_digest", described["digest"]):
        raise ValueError(f"the digest of column {described['field']} differs")
    return array
