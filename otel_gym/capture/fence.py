"""Generations: a number per rollout that rises when its attempt is cleared.

A call remembers the generation it began in. A record whose generation is older than the rollout's belongs to a cleared attempt and goes to the stale
file. The number is a fixed-width decimal in `.otel-gym/generations/<rollout_id>`, rewritten in place under a lock; a rollout without a file is at 0.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from otel_gym.capture.locks import Lock, lock, unlock
from otel_gym.capture.private_files import open_file
from otel_gym.errors import StoreUnavailable

_WIDTH: Final = 20
_LOCK_TIMEOUT_S: Final = 30.0


def read_generation(directory: str, rollout_id: str) -> int:
    """The rollout's generation; 0 where it was never cleared. Raises `OSError` for an unreadable file."""
    return read_fence(directory, rollout_id)[0]


def read_fence(directory: str, rollout_id: str) -> tuple[int, int]:
    """(generation, how many records were removed by all clears); zeros where it was never cleared. Raises `OSError` for an unreadable file."""
    try:
        descriptor = os.open(
            f"{directory}/{rollout_id}",
            os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
        )
    except FileNotFoundError:
        return 0, 0
    try:
        return _parse(os.pread(descriptor, 2 * _WIDTH + 2, 0))
    finally:
        os.close(descriptor)


def read_cleared(directory: Path, rollout_id: str) -> int:
    """How many records were removed from the rollout by all its clears. Raises `OSError` for an unreadable file."""
    return read_fence(os.fspath(directory), rollout_id)[1]


def raise_generation(directory: Path, rollout_id: str, mode: int, cleared: int = 0) -> int:
    """Raise the rollout's generation by one (by none where only `cleared` records are added) and return it.

    Durable when it returns and the directory is synced. Raises `StoreUnavailable` where another process holds the file for half a minute, else `OSError`.
    """
    return _update(directory, rollout_id, mode, step=1, cleared=cleared)


def add_cleared(directory: Path, rollout_id: str, mode: int, cleared: int) -> None:
    """Add to the number of records that clears have removed."""
    _update(directory, rollout_id, mode, step=0, cleared=cleared)


def _update(directory: Path, rollout_id: str, mode: int, *, step: int, cleared: int) -> int:
    path = directory / rollout_id
    descriptor = open_file(path, mode)
    held = Lock.BUSY
    try:
        held = lock(descriptor, _LOCK_TIMEOUT_S)
        if held is Lock.BUSY:
            raise StoreUnavailable(f"{path}: locked by another process for {_LOCK_TIMEOUT_S:g} s")
        generation, before = _parse(os.pread(descriptor, 2 * _WIDTH + 2, 0))
        generation += step
        os.pwrite(descriptor, b"%*d %*d\n" % (_WIDTH, generation, _WIDTH, before + cleared), 0)
        os.fsync(descriptor)
        return generation
    finally:
        if held is Lock.HELD:
            unlock(descriptor)
        os.close(descriptor)


def _parse(data: bytes) -> tuple[int, int]:
    """(generation, cleared records) of a generation file; zeros where it is empty or damaged."""
    words = data.split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return 0, 0
    return int(words[0]), int(words[1])
