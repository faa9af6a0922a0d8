"""`Index`: brings the index up to date with the files, and finds lines through it."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from otel_gym.capture.layout import Layout
from otel_gym.capture.source import Source
from otel_gym.correlation.rollout_id import is_valid
from otel_gym.correlation.run import Run, read_run
from otel_gym.counters import count
from otel_gym.errors import StoreError
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.rollout import read_rollout_mapping
from otel_gym.viewer.index.database import Database, index_path
from otel_gym.viewer.index.rollout_rows import RolloutReader, RolloutRows
from otel_gym.viewer.index.scan import FileState, scan, scan_one
from otel_gym.viewer.index.schema import STATE_COLUMNS
from otel_gym.viewer.index.stored_rows import (
    indexed_rollouts,
    put_rollouts,
    remove_rollouts,
)
from otel_gym.viewer.nesting import readable

logger = logging.getLogger(__name__)

_BATCH_S: Final = 0.25
"""Longest transaction of a refresh, so that pages in between see what is there so far."""
_BATCH_ROLLOUTS: Final = 512
_ALL_STATES: Final = f"SELECT rollout_id,{','.join(STATE_COLUMNS)} FROM rollouts"


@dataclass(slots=True)
class Progress:
    """Where a refresh is."""

    running: bool = False
    done: int = 0
    total: int = 0
    first_done: bool = False
    """Whether the whole directory was looked at once since the viewer began."""
    cost_s: float = 0.0
    """How long the last refresh took, in seconds."""


class Index:
    """The index of one capture directory; safe to use from several threads."""

    def __init__(self, directory: Path, *, options: SpanOptions, keep: bool = True) -> None:
        """Open the index of `directory`, in memory where it cannot stand beside the files. Raises `StoreError` for a damaged run file."""
        self.layout = Layout(directory)
        self.options = options
        self.named_run = read_run(directory)
        self.run = self.named_run or _unnamed(directory)
        self.database = Database(index_path(self.layout) if keep else None, self._identity())
        self.progress = Progress()
        kept_generation = self.database.tuples("SELECT value FROM meta WHERE key='generation'")
        self.generation = int(kept_generation[0][0]) if kept_generation else 1
        """Rises with every change, so that what was computed from the index can be kept until then."""
        self.problem: str | None = None
        """Why the directory could not be looked at last, null when it could."""
        self._changing = threading.Lock()
        self._stopping = False
        self._distrusted: sqlite3.Error | None = None
        self._retired: list[Database] = []
        self._states: dict[str, FileState] = {}
        self._states_loaded = False

    def refresh(self) -> bool:
        """Bring all rollouts up to date; whether anything had changed."""
        began = time.monotonic()
        self.progress.running = True
        try:
            if self._distrusted is not None:
                self._make_anew(self._distrusted)
            self._follow_run()
            self._load_states()
            try:
                found = scan(self.layout, self._states)
                self.problem = None
            except OSError as error:
                self.problem = f"{self.layout.root}: cannot be listed: {error.strerror}"
                return False
            stale = [name for name, state in found.items() if self._states.get(name) != state]
            # The newest last: they are what a person who opens the viewer now is after.
            stale.sort(key=lambda name: found[name].plain_mtime_ns or 0)
            self.progress.done, self.progress.total = 0, len(stale)
            stale.extend(self._states.keys() - found.keys())
            changed = bool(stale)
            while stale and not self._stopping:
                batch = {name: found.get(name) for name in stale[: -_BATCH_ROLLOUTS - 1 : -1]}
                done = self._change(batch, time.monotonic() + _BATCH_S)
                del stale[-done:]
                self.progress.done = max(0, self.progress.total - len(stale))
            self.progress.first_done = not stale
            return changed
        finally:
            self.progress.running = False
            self.progress.cost_s = time.monotonic() - began

    def refresh_one(self, rollout_id: str) -> bool:
        """Bring one rollout up to date; whether it is there. An id that breaks the grammar never is."""
        if not is_valid(rollout_id):
            return False
        state = scan_one(self.layout, rollout_id)
        known = self._known_state(rollout_id)
        if state.present and known != state:
            self._change({rollout_id: state})
        elif not state.present and known is not None:
            self._change({rollout_id: None})
        return state.present

    def has_content(self) -> bool:
        """Whether there is anything to show before the first refresh."""
        return bool(self.database.tuples("SELECT 1 FROM rollouts LIMIT 1"))

    def rollout(self, rollout_id: str) -> dict[str, Any] | None:
        """The row of a rollout, as fresh as its files; null where there is none."""
        if not self.refresh_one(rollout_id):
            return None
        return self.database.row("SELECT * FROM rollouts WHERE rollout_id=?", (rollout_id,))

    def calls(self, rollout_key: int) -> list[dict[str, Any]]:
        """The rows of a rollout's calls in file order; `rollout_key` is the `id` of its row."""
        return self.database.rows(
            "SELECT * FROM calls WHERE rollout=? ORDER BY number", (rollout_key,)
        )

    def kept(self, name: str) -> Any:
        """What was kept under a name for this generation; null for nothing."""
        found = self.database.tuples("SELECT value FROM meta WHERE key=?", (f"kept {name}",))
        if not found:
            return None
        generation, _, value = found[0][0].partition(" ")
        return orjson.loads(value) if generation == str(self.generation) else None

    def keep(self, name: str, generation: int, value: Any) -> None:
        """Keep a JSON value that was computed from this generation, for the next viewer."""
        text = f"{generation} {orjson.dumps(value).decode()}"
        with self._changing, self.database.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (f"kept {name}", text))

    def rollout_of_trace(self, trace_id: str) -> str | None:
        """The rollout whose trace it is."""
        found = self.database.row("SELECT rollout_id FROM rollouts WHERE trace_id=?", (trace_id,))
        return str(found["rollout_id"]) if found else None

    def rollouts_in_trace(self, trace_id: str) -> list[str]:
        """All rollouts with a span in the trace, its own rollout first."""
        own = self.rollout_of_trace(trace_id)
        others = self.database.tuples(
            "SELECT DISTINCT rollout_id FROM rollouts WHERE id IN"
            " (SELECT rollout FROM calls WHERE foreign_trace=?) ORDER BY rollout_id",
            (trace_id,),
        )
        return [*([own] if own else []), *(name for (name,) in others if name != own)]

    def line(self, rollout_id: str, call: Mapping[str, Any]) -> bytes:
        """The line of a call as it stands in the file. Raises `StoreError` where it is not there any more."""
        with self._source(rollout_id) as source:
            data = source.read(call["offset_bytes"], call["length_bytes"])
        if len(data) != call["length_bytes"]:
            raise StoreError(f"{rollout_id}: line {call['number']} is not where it was")
        return data

    def raw_record(self, rollout_id: str, call: Mapping[str, Any]) -> dict[str, Any]:
        """The raw record of a call, its depths as text (see `readable`). Raises `StoreError` where the line is not there any more."""
        try:
            value = orjson.loads(self.line(rollout_id, call))
        except orjson.JSONDecodeError as error:
            raise StoreError(f"{rollout_id}: line {call['number']} is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise StoreError(f"{rollout_id}: line {call['number']} is not a record")
        return dict(readable(value))

    def rollout_record(self, rollout_id: str) -> dict[str, Any] | None:
        """The rollout's own record, null where there is none or it cannot be read."""
        if scan_one(self.layout, rollout_id).record_size is None:
            return None
        try:
            found = read_rollout_mapping(self.layout.root, rollout_id)
        except (StoreError, OSError):
            return None
        return None if found is None else dict(readable(found))

    def stop(self) -> None:
        """A refresh that runs ends within `_BATCH_S`, wherever it is."""
        self._stopping = True

    def distrust(self, error: sqlite3.Error) -> None:
        """The database failed: the next refresh begins a new one."""
        self._distrusted = error

    def close(self) -> None:
        """Close the database."""
        for database in (self.database, *self._retired):
            database.close()

    # -- inside

    def _make_anew(self, error: sqlite3.Error) -> None:
        """Begin a new database in place of one that failed: once at its place, in memory when that fails too or another viewer holds it."""
        count("store.failures")
        logger.warning("The index of %s is made anew: %s", self.layout.root, error)
        with self._changing:
            path = self.database.path
            if path is not None and (self._retired or "locked" in str(error)):
                path = None
            # Other threads may be reading the old one: it is closed at the end.
            self._retired.append(self.database)
            self.database = Database(path, self._identity(), suspect=True)
            self._states.clear()
            self._states_loaded = False
            self._distrusted = None
            self.progress.first_done = False
            self.generation += 1

    def _identity(self) -> str:
        return f"{self.run.run_id}\n{self.options}"

    def _follow_run(self) -> None:
        """Begin anew where the directory has become a run, or another one, since it was opened."""
        try:
            named = read_run(self.layout.root)
        except StoreError as error:
            count("store.failures")
            logger.warning("The run file cannot be read: %s", error)
            return
        run = named or _unnamed(self.layout.root)
        if run == self.run:
            return
        with self._changing, self.database.writing() as connection:
            self.named_run, self.run = named, run
            connection.execute("DELETE FROM calls")
            connection.execute("DELETE FROM rollouts")
            connection.execute("DELETE FROM meta WHERE key LIKE 'kept %'")
            connection.execute("UPDATE meta SET value=? WHERE key='identity'", (self._identity(),))
            self._states.clear()
            self.generation += 1

    def _source(self, rollout_id: str) -> Source:
        return Source(self.layout.records(rollout_id), self.layout.packed(rollout_id))

    def _load_states(self) -> None:
        """What the files looked like when they were indexed; read once, after the first page can be shown."""
        if self._states_loaded:
            return
        with self._changing:
            for row in self.database.tuples(_ALL_STATES):
                self._states[row[0]] = FileState(*row[1:])
            self._states_loaded = True

    def _known_state(self, rollout_id: str) -> FileState | None:
        if not self._states_loaded:
            found = self.database.tuples(f"{_ALL_STATES} WHERE rollout_id=?", (rollout_id,))
            return FileState(*found[0][1:]) if found else None
        return self._states.get(rollout_id)

    def _change(self, wanted: Mapping[str, FileState | None], deadline: float = 0.0) -> int:
        """Bring these rollouts to these states in one transaction; how many were done when the time was over (at least one)."""
        reached: dict[str, FileState | None] = {}
        made: dict[str, RolloutRows] = {}
        with self._changing, self.database.writing() as connection:
            indexed = indexed_rollouts(connection, wanted)
            reader = RolloutReader(self.layout, self.run)
            for rollout_id, state in wanted.items():
                if state is not None:
                    made[rollout_id] = reader.read(rollout_id, state, indexed.get(rollout_id))
                reached[rollout_id] = state
                if deadline and time.monotonic() > deadline:
                    break
            put_rollouts(connection, indexed, made)
            remove_rollouts(
                connection,
                [indexed[one] for one in reached if one in indexed and one not in made],
            )
            self.generation += 1
            connection.execute(
                "INSERT OR REPLACE INTO meta VALUES('generation', ?)", (str(self.generation),)
            )
            for rollout_id, state in reached.items():
                if state is None:
                    self._states.pop(rollout_id, None)
                else:
                    self._states[rollout_id] = state
        return len(reached)


def _unnamed(directory: Path) -> Run:
    """A stand-in for the run of a directory that has no run file: the viewer writes none."""
    name = hashlib.sha256(str(directory.resolve()).encode("utf-8", "surrogateescape")).hexdigest()
    return Run(
        schema=1,
        run_id=f"unnamed-{name[:16]}",
        created_at=0.0,
        resource={"service.name": "otel-gym"},
    )
