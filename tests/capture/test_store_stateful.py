"""Any interleaving of appends, crashes, repairs, clears, packs and reads gives exactly the acknowledged records."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from otel_gym.capture.claims import Claim
from otel_gym.capture.ledger import read_ledger
from otel_gym.capture.pack import pack_rollout
from otel_gym.capture.store import CaptureStore
from otel_gym.capture.writer import RecordWriter
from tests.capture.calls import finished_call

ID = "r"


class StoreMachine(RuleBasedStateMachine):
    """One rollout, seen by two stores and a writer; the model is a list of acknowledged calls."""

    claims: Bundle[tuple[Claim, Any]] = Bundle("claims")

    @initialize()
    def open(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.root = Path(self._directory.name)
        self.loop = asyncio.new_event_loop()
        self.writer = RecordWriter(self.root, flushers=2)
        self.stores = [CaptureStore(self.root), CaptureStore(self.root)]
        self.names = 0
        self.acknowledged: list[str] = []
        self.places: dict[str, tuple[int, int]] = {}
        self.stale: list[str] = []
        self.torn_open = False
        self.damaged = 0
        self.generation = 0

    def teardown(self) -> None:
        self.writer.close(10)
        self.loop.close()
        self._directory.cleanup()

    def name(self) -> str:
        self.names += 1
        return f"{self.names:032x}"

    def appended(self, name: str, offset: int, length: int) -> None:
        self.acknowledged.append(name)
        self.places[name] = (offset, length)
        self.torn_open = False

    @rule(which=st.integers(0, 1), size=st.sampled_from([1, 100, 5000]))
    def append(self, which: int, size: int) -> None:
        """A store appends one record."""
        name = self.name()
        written = self.stores[which].record(ID, {"model_call_id": name, "text": "x" * size})
        self.appended(name, written.offset_bytes, written.length_bytes)

    @rule(target=claims)
    def begin(self) -> Any:
        """A call begins at the server."""
        return self.begin_call()

    def begin_call(self) -> tuple[Claim, Any]:
        facts = finished_call(ID, call_id=self.name())
        return self.writer.begin(ID, facts.model_call_id), facts

    @rule(ended=st.lists(consumes(claims), min_size=1, max_size=5))
    def end(self, ended: list[tuple[Claim, Any]]) -> None:
        """Calls end at the same time; those that began before a clear are stragglers."""

        async def write_all() -> list[Any]:
            return await asyncio.gather(*(self.writer.write(f, c) for c, f in ended))

        for (claim, _), written in zip(
            ended, self.loop.run_until_complete(write_all()), strict=True
        ):
            assert written is not None
            assert written.stale == (claim.generation < self.generation)
            if written.stale:
                self.stale.append(claim.model_call_id)
            else:
                self.appended(claim.model_call_id, written.offset_bytes, written.length_bytes)

    @precondition(lambda self: self.acknowledged)
    @rule(cut=st.integers(1, 40))
    def crash(self, cut: int) -> None:
        """A writer dies in the middle of a line."""
        line = b'{"model_call_id":"never acknowledged","text":"x"}'
        with self.stores[0].path_for(ID).open("ab") as file:
            file.write(line[: min(cut, len(line) - 1)])
        if not self.torn_open:
            self.damaged += 1
        self.torn_open = True

    @rule(which=st.integers(0, 1))
    def clear(self, which: int) -> None:
        """The collector clears the attempt."""
        self.stores[which].clear(ID)
        self.acknowledged, self.places = [], {}
        self.damaged, self.torn_open = 0, False
        self.generation += 1

    @rule(before=st.integers(1, 3), after=st.integers(0, 3))
    def straggle(self, before: int, after: int) -> None:
        """Calls that began before a clear end together with calls of the next attempt."""
        old = [self.begin_call() for _ in range(before)]
        self.clear(0)
        self.end(old + [self.begin_call() for _ in range(after)])

    @rule(which=st.integers(0, 1))
    def pack(self, which: int) -> None:
        """The rollout is packed, unless it is open."""
        outcome = pack_rollout(self.stores[which], ID, idle_s=0)
        if outcome.state == "packed":
            assert not self.stores[which].path_for(ID).exists()
            assert not self.torn_open

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        """A process ends and another begins."""
        self.stores[which].close()
        self.stores[which] = CaptureStore(self.root)

    @rule(data=st.data(), indexed=st.booleans())
    def find(self, data: st.DataObject, indexed: bool) -> None:
        """Each acknowledged call is found at its place, and no other is, whether an index is there or not."""
        store = self.stores[0]
        if not indexed:
            for path in store.layout.index.glob("*"):
                path.unlink()
        assert store.find(ID, "f" * 32) is None
        if self.acknowledged:
            name = data.draw(st.sampled_from(self.acknowledged))
            entry = store.find(ID, name)
            assert entry is not None
            assert (entry.offset_bytes, entry.length_bytes) == self.places[name]

    @rule()
    def account(self) -> None:
        """The ledger agrees."""
        ledger = read_ledger(self.stores[0])
        if ledger.rollouts:
            [one] = ledger.rollouts
            assert one.recorded == len(self.acknowledged)
            assert one.stale == len(self.stale)
            assert one.torn == self.damaged
            assert one.lost == one.pending_dead == one.duplicates == 0

    @invariant()
    def reads_what_was_acknowledged(self) -> None:
        """Readers see every acknowledged record once, in order, at its place, and count the damage."""
        for store in self.stores:
            found = [
                (r["model_call_id"], (offset, length))
                for offset, length, r in store.iter_records(ID)
            ]
            assert found == [(name, self.places[name]) for name in self.acknowledged]
            assert store.read_available(ID)[1] == self.damaged
        late = [line.record["model_call_id"] for line in store.iter_stale(ID) if line.record]
        assert sorted(late) == sorted(self.stale)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
