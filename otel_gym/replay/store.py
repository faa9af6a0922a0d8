"""A durable, branching store of histories in one SQLite file.

Entries are nodes of a tree and are never changed: a node holds one entry and points at the one before it.
A branch of a rollout's attempt is a name for its last node, so forks share their prefix and a checkpoint
writes only what is new. Each node has the SHA-256 of its entry and of its whole path; columns are blobs
beside it.

The file is in WAL mode with full synchronisation: when `checkpoint` returns, the turn is on disk, and
readers in other processes are never blocked.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

from otel_gym.replay.container import HistoryEntry
from otel_gym.replay.errors import DamagedHistory, HistoryStoreError, UnknownHistory
from otel_gym.replay.prompt_chain import PromptChain
from otel_gym.replay.store_paths import Branch, BranchPaths, Node, branch_key
from otel_gym.replay.store_rows import SCHEMA, entry_digest, read_entry

STORE_VERSION: Final = 1
MAIN_BRANCH: Final = "main"

_APPLICATION_ID: Final = 0x4F474853  # "OGHS" in the file's header, so that `file` can tell
_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_LOG_PAGES: Final = 16_384  # 64 MiB
_BUSY_TIMEOUT_S: Final = 30.0


class HistoryStore:
    """A history database, created where it does not exist. One object serves any number of threads.

    Raises `HistoryStoreError` for a file that is something else or of a newer version, and
    `DamagedHistory` for one that cannot be read.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._refuse_other_files(read_only)
        if read_only and self._cannot_change():
            mode = "ro&immutable=1"
        else:
            mode = "ro" if read_only else "rwc"
        try:
            self._connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=_BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise HistoryStoreError(f"{self.path}: cannot be opened: {error}") from error
        self._paths = BranchPaths(self._connection, str(self.path))
        try:
            with self._damage_named():
                self._prepare(read_only)
            self._file = _identity(self.path)
        except BaseException:
            self._connection.close()
            raise

    def _cannot_change(self) -> bool:
        """Whether the file can be read without its log: nothing is in one, and none can be made beside it."""
        file = self.path.resolve()
        log = file.with_name(file.name + "-wal")
        return not log.exists() and not os.access(file.parent, os.W_OK)

    def _refuse_other_files(self, read_only: bool) -> None:
        try:
            with self.path.open("rb") as file:
                magic = file.read(len(_SQLITE_MAGIC))
        except FileNotFoundError:
            magic = b""
        except OSError as error:
            raise HistoryStoreError(f"{self.path}: cannot be read: {error.strerror}") from error
        if magic != _SQLITE_MAGIC and (magic or read_only):
            raise HistoryStoreError(f"{self.path}: not a history database")

    def _prepare(self, read_only: bool) -> None:
        execute = self._connection.execute
        (version,) = execute("PRAGMA user_version").fetchone()
        (application,) = execute("PRAGMA application_id").fetchone()
        (tables,) = execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if (tables or read_only) and application != _APPLICATION_ID:
            raise HistoryStoreError(f"{self.path}: not a history database")
        if version > STORE_VERSION:
            raise HistoryStoreError(
                f"{self.path}: version {version} is newer than {STORE_VERSION}; update otel-gym"
            )
        if read_only:
            return
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute("PRAGMA foreign_keys = ON")
        # Pages move from the log into the file in the background of few checkpoints, not of each turn.
        execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        if not version:
            with self._transaction("IMMEDIATE"):
                if not execute("PRAGMA user_version").fetchone()[0]:
                    for statement in SCHEMA:
                        execute(statement)
                    execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    execute(f"PRAGMA user_version = {STORE_VERSION}")

    def checkpoint(
        self,
        rollout_id: str,
        history: Sequence[HistoryEntry],
        *,
        attempt: int = 0,
        branch: str = MAIN_BRANCH,
    ) -> int:
        """Make a history durable as a branch; returns how many entries had to be written.

        A history that no longer starts with what the branch holds forks at the last common entry; nothing
        that was stored is changed. `CaptureError` where an entry has no JSON value; `HistoryStoreError`
        where the file was removed or replaced since it was opened, so that nothing could find the entries.
        """
        key = branch_key(rollout_id, attempt, branch)
        digests = [entry_digest(index, entry) for index, entry in enumerate(history)]
        with self._lock, self._damage_named():
            with self._transaction("IMMEDIATE"):
                exists = self._paths.exists(key)
                known = self._paths.of(key) if exists else []
                common = _common_length(known, digests)
                path = self._paths.extend(known[:common], history, digests)
                if not exists or path != known:
                    self._paths.point(key, path)
            self._paths.remember(key, path)
            if _identity(self.path) != self._file:
                raise HistoryStoreError(f"{self.path}: was removed or replaced while it was open")
        return len(history) - common

    def load(
        self,
        rollout_id: str,
        *,
        attempt: int = 0,
        branch: str = MAIN_BRANCH,
        entries: int | None = None,
    ) -> list[HistoryEntry]:
        """The history of a branch, or its first `entries`; every entry is verified.

        Raises `UnknownHistory` or `DamagedHistory`.
        """
        with self._lock, self._damage_named(), self._transaction("DEFERRED"):
            path = self._paths.of(branch_key(rollout_id, attempt, branch))
            if entries is not None:
                path = self._cut(path, entries, rollout_id)
            return list(self._read(path))

    def fork(
        self,
        rollout_id: str,
        entries: int,
        *,
        attempt: int = 0,
        branch: str = MAIN_BRANCH,
        to_rollout_id: str | None = None,
        to_attempt: int | None = None,
        to_branch: str = MAIN_BRANCH,
    ) -> None:
        """Begin a new branch that shares the first `entries` entries of another; nothing is copied.

        Raises `UnknownHistory`, or `HistoryStoreError` where the new branch exists already.
        """
        target = branch_key(
            rollout_id if to_rollout_id is None else to_rollout_id,
            attempt if to_attempt is None else to_attempt,
            to_branch,
        )
        with self._lock, self._damage_named(), self._transaction("IMMEDIATE"):
            path = self._paths.of(branch_key(rollout_id, attempt, branch))
            if self._paths.exists(target):
                raise HistoryStoreError(f"{self.path}: the branch {target} exists already")
            self._paths.point(target, self._cut(path, entries, rollout_id))

    def branches(self, rollout_id: str | None = None) -> list[Branch]:
        """All branches, or those of one rollout, in order of rollout, attempt and name."""
        with self._lock, self._damage_named(), self._transaction("DEFERRED"):
            return self._paths.listed(rollout_id)

    def verify(self, branch: Branch) -> None:
        """Read a branch and recompute every digest; raises `DamagedHistory` at the first damage."""
        self.load(branch.rollout_id, attempt=branch.attempt, branch=branch.name)

    def verify_file(self) -> None:
        """Check the database's own structure, used or not; raises `DamagedHistory`."""
        with self._lock, self._damage_named():
            (answer,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if answer != "ok":
            raise DamagedHistory(f"{self.path}: {answer}")

    def close(self) -> None:
        """Close the file; what was checkpointed is durable already."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> HistoryStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        try:
            yield
        except (
            sqlite3.OperationalError,
            sqlite3.IntegrityError,
            sqlite3.ProgrammingError,
            sqlite3.DataError,  # more than SQLite holds in one value
            OverflowError,
        ) as error:
            raise HistoryStoreError(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise DamagedHistory(f"{self.path}: {error}") from error

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self._connection.execute(f"BEGIN {kind}")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _cut(self, path: list[Node], entries: int, rollout_id: str) -> list[Node]:
        if not 0 <= entries <= len(path):
            raise UnknownHistory(
                f"{self.path}: rollout {rollout_id!r} has {len(path)} entries, not {entries}"
            )
        return path[:entries]

    def _read(self, path: list[Node]) -> Iterator[HistoryEntry]:
        prompts = PromptChain()
        for node in path:
            try:
                yield read_entry(self._connection, node.id, prompts)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise DamagedHistory(
                    f"{self.path}: node {node.id}: {error}", node_id=node.id
                ) from error


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to, null for none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _common_length(path: list[Node], digests: Sequence[str]) -> int:
    """How many first entries of a path are those of a history."""
    common = 0
    for node, digest in zip(path, digests, strict=False):
        if node.digest != digest:
            break
        common += 1
    return common
