"""Any sequence of checkpoints and forks, by several connections, against a dictionary of lists."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gym.replay import HistoryEntry, HistoryStore
from tests.replay.test_store import made

ENTRIES: list[HistoryEntry] = [
    *map(made, range(4)),
    {"role": "user", "content": "hi"},
    {},
    made(1).replace_text("edited"),
]

places = st.tuples(st.sampled_from("rs"), st.integers(0, 1), st.sampled_from(["main", "b"]))
steps = st.one_of(
    st.tuples(st.just("new"), places, st.lists(st.integers(0, len(ENTRIES) - 1), max_size=5)),
    st.tuples(st.just("more"), places, st.lists(st.integers(0, len(ENTRIES) - 1), max_size=2)),
    st.tuples(st.just("fork"), places, places, st.integers(0, 5)),
)


@given(st.lists(st.tuples(st.integers(0, 1), steps), max_size=12))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_a_store_is_a_dictionary_of_histories(done: list[tuple[int, tuple[object, ...]]]) -> None:
    """Whatever is checkpointed and forked, each branch holds what it was given last, and verifies."""
    model: dict[tuple[str, int, str], list[HistoryEntry]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "h.db"
        with HistoryStore(path) as one, HistoryStore(path) as other:
            for connection, (kind, place, *rest) in done:
                store = (one, other)[connection]
                rollout, attempt, branch = place  # type: ignore[misc]
                if kind == "fork":
                    target, wanted = rest
                    cut = min(wanted, len(model.get(place, ())))  # type: ignore[call-overload]
                    if place not in model or target in model:
                        continue
                    store.fork(
                        rollout, cut, attempt=attempt, branch=branch,
                        to_rollout_id=target[0], to_attempt=target[1], to_branch=target[2],  # type: ignore[index]
                    )  # fmt: skip
                    model[target] = model[place][:cut]  # type: ignore[index]
                    continue
                before = model.get(place, []) if kind == "more" else []  # type: ignore[call-overload]
                history = [*before, *(ENTRIES[number] for number in rest[0])]  # type: ignore[attr-defined]
                store.checkpoint(rollout, history, attempt=attempt, branch=branch)
                model[place] = history  # type: ignore[index]
        with HistoryStore(path, read_only=True) as store:
            assert {branch.key for branch in store.branches()} == set(model)
            for branch in store.branches():
                loaded = store.load(branch.rollout_id, attempt=branch.attempt, branch=branch.name)
                assert loaded == model[branch.key]
                assert branch.entries == len(loaded)
            store.verify_file()
