"""Rows of rollouts in the database: what is there, many put in and taken out at once."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from otel_gym.viewer.index.rollout_rows import Indexed, RolloutRows
from otel_gym.viewer.index.schema import CALL_COLUMNS, ROLLOUT_COLUMNS, CallRow

_KNOWN: Final = (
    "SELECT rollout_id,id,indexed_bytes,lines,damaged,head,tail FROM rollouts"
    " WHERE rollout_id IN (SELECT value FROM json_each(?))"
)
_CALLS: Final = f"SELECT {','.join(CALL_COLUMNS)} FROM calls WHERE rollout=? ORDER BY number"
_PUT_ROLLOUT: Final = (
    f"INSERT OR REPLACE INTO rollouts VALUES({','.join('?' * (len(ROLLOUT_COLUMNS) + 1))})"
)
_INSERT_CALL: Final = f"INSERT INTO calls VALUES({','.join('?' * (len(CALL_COLUMNS) + 1))})"


def indexed_rollouts(
    connection: sqlite3.Connection, rollout_ids: Iterable[str]
) -> dict[str, Indexed]:
    """What the index has of these rollouts. `calls` of one may be asked for until the transaction ends."""
    ids = orjson.dumps(list(rollout_ids)).decode()
    found: dict[str, Indexed] = {}
    for rollout_id, key, *progress in connection.execute(_KNOWN, (ids,)).fetchall():
        calls = functools.partial(_calls, connection, key)
        found[rollout_id] = Indexed._make((key, *progress, calls))
    return found


def put_rollouts(
    connection: sqlite3.Connection,
    indexed: Mapping[str, Indexed],
    made: Mapping[str, RolloutRows],
) -> None:
    """Put rows in, in place of what is `indexed` of them."""
    [(last,)] = connection.execute("SELECT ifnull(max(id), 0) FROM rollouts").fetchall()
    rollouts: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    outdated: list[tuple[int]] = []
    for rollout_id, rows in made.items():
        known = indexed.get(rollout_id)
        if known is None:
            last += 1
            key = last
        else:
            key = known.key
            if not rows.kept:
                outdated.append((key,))
        rollouts.append((key, *rows.row))
        calls.extend((key, *call) for call in rows.calls)
    if outdated:
        connection.executemany("DELETE FROM calls WHERE rollout=?", outdated)
    connection.executemany(_PUT_ROLLOUT, rollouts)
    connection.executemany(_INSERT_CALL, calls)


def remove_rollouts(connection: sqlite3.Connection, removed: Iterable[Indexed]) -> None:
    """Take rows out."""
    keys = [(rollout.key,) for rollout in removed]
    connection.executemany("DELETE FROM calls WHERE rollout=?", keys)
    connection.executemany("DELETE FROM rollouts WHERE id=?", keys)


def _calls(connection: sqlite3.Connection, key: int) -> Sequence[CallRow]:
    return [CallRow._make(row) for row in connection.execute(_CALLS, (key,))]
