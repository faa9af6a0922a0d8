"""Fresh ids, across threads and forks."""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor

from otel_gym.capture.call_ids import new_call_id


def test_ids_are_version_4_and_never_repeat() -> None:
    """Four threads drawing at once get thousands of different version 4 ids."""
    with ThreadPoolExecutor(4) as threads:
        ids = [
            one
            for part in threads.map(lambda _: [new_call_id() for _ in range(2000)], range(4))
            for one in part
        ]
    assert len(set(ids)) == 8000
    assert all(len(one) == 32 and uuid.UUID(one).version == 4 for one in ids)


def test_a_forked_child_draws_its_own() -> None:
    """Parent and child do not hand out the same ids after a fork."""
    new_call_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, "".join(new_call_id() for _ in range(50)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    theirs = os.read(reader, 50 * 32).decode()
    os.close(reader)
    own = {new_call_id() for _ in range(300)}
    assert len(theirs) == 1600 and not own & {theirs[at : at + 32] for at in range(0, 1600, 32)}
