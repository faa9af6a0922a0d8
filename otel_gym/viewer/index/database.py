"""The SQLite file of the index, or its stand-in in memory."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from otel_gym.capture.layout import Layout
from otel_gym.capture.locks import Lock, lock
from otel_gym.viewer.index.schema import SCHEMA, VERSION

logger = logging.getLogger(__name__)

FILE: Final = "index.sqlite"
LOCK: Final = "index.lock"
_TIMEOUT_S: Final = 30.0


def index_path(layout: Layout) -> Path:
    """Where the index of a capture directory stands."""
    return layout.private / "viewer" / FILE


class Database:
    """Connections to the index. Reads and writes may come from any thread; each is one transaction."""

    def __init__(self, path: Path | None, identity: str, *, suspect: bool = False) -> None:
        """Open the index at `path`, or one in memory for null or where `path` cannot be used.

        `identity` names the run: an index of another is thrown away, and of a `suspect` one also what is damaged anywhere.
        """
        self.path: Path | None = None
        self._write_lock = threading.RLock()
        self._read_lock = threading.RLock()
        if path is not None:
            try:
                with _opening(path):
                    self._writer = _open_file(path, identity, suspect)
                    self._reader = _connect(path)
                    # Its log is opened now, while nobody can put another index in the place of this one.
                    self._reader.execute("SELECT count(*) FROM meta").fetchall()
                self.path = path
                return
            except (OSError, sqlite3.Error) as error:
                logger.info("The index is kept in memory: %s: %s", path, error)
        self._writer = self._reader = _connect(None)
        self._read_lock = self._write_lock
        _create(self._writer, identity)

    @property
    def in_memory(self) -> bool:
        """Whether the index is gone when the viewer ends."""
        return self.path is None

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed at the end, rolled back on an error."""
        with self._write_lock:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")

    def rows(
        self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[dict[str, Any]]:
        """All rows of a query, by column name."""
        with self._read_lock:
            cursor = self._reader.execute(sql, values)
            names = [column[0] for column in cursor.description]
            found = cursor.fetchall()
        return [dict(zip(names, row, strict=True)) for row in found]

    def row(
        self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> dict[str, Any] | None:
        """The first row of a query."""
        found = self.rows(sql, values)
        return found[0] if found else None

    def tuples(
        self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows of a query, bare."""
        with self._read_lock:
            return self._reader.execute(sql, values).fetchall()

    def close(self) -> None:
        """Close the connections."""
        with self._write_lock, self._read_lock:
            self._reader.close()
            if self._writer is not self._reader:
                self._writer.close()


def _connect(path: Path | None) -> sqlite3.Connection:
    connection = sqlite3.connect(
        ":memory:" if path is None else path,
        timeout=_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute("PRAGMA cache_size=-32000")
    connection.execute("PRAGMA temp_store=MEMORY")
    return connection


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[None]:
    """One viewer at a time makes or removes the files: two that start together would write the log of one into the file of the other."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path.with_name(LOCK), flags, 0o600)
    try:
        if lock(descriptor, _TIMEOUT_S) is not Lock.HELD:
            raise OSError(f"{path.with_name(LOCK)} is held by another process or cannot be locked")
        yield
    finally:
        os.close(descriptor)


def _open_file(path: Path, identity: str, suspect: bool) -> sqlite3.Connection:
    """Open or make the file; one that is damaged, of another version or of another run is removed first."""
    for attempt in (1, 2):
        connection: sqlite3.Connection | None = None
        try:
            if not path.exists():
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            connection = _connect(path)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            if not _is_ours(connection, identity):
                _create(connection, identity)
            elif suspect and connection.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
                raise sqlite3.DatabaseError("the index is damaged")
            # Writing is tried at once: a read-only file would else be found out too late.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR REPLACE INTO meta VALUES('opened', 'yes')")
            connection.execute("COMMIT")
            return connection
        except sqlite3.DatabaseError:
            if connection is not None:
                connection.close()
            if attempt == 2:
                raise
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                path.with_name(name).unlink(missing_ok=True)
    raise AssertionError("the second attempt returns or raises")


def _is_ours(connection: sqlite3.Connection, identity: str) -> bool:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not tables:
        return False
    if "meta" not in tables:
        raise sqlite3.DatabaseError("the file is another database")
    found = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    if found.get("version") != VERSION or found.get("identity") != identity:
        raise sqlite3.DatabaseError("the index is of another version or run")
    return True


def _create(connection: sqlite3.Connection, identity: str) -> None:
    connection.executescript(f"BEGIN;{SCHEMA}COMMIT;")
    connection.execute("INSERT INTO meta VALUES('version', ?)", (VERSION,))
    connection.execute("INSERT INTO meta VALUES('identity', ?)", (identity,))
