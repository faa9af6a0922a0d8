"""`python writers.py DIRECTORY PROCESSES CALLS ROLLOUTS`: processes that write into one directory at the same time, 16 calls in flight each."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from otel_gym.capture.writer import RecordWriter
from tests.capture.calls import finished_call


async def write_all(writer: RecordWriter, process: int, calls: int, rollouts: int) -> None:
    """This process's calls; every one must be durable."""
    turn = iter(range(calls))

    async def worker() -> None:
        for i in turn:
            rollout_id = f"r{(i + process) % rollouts}"
            facts = finished_call(rollout_id, call_id=f"{process:016x}{i:016x}")
            written = await writer.write(facts, writer.begin(rollout_id, facts.model_call_id))
            assert written is not None, (process, i)

    await asyncio.gather(*(worker() for _ in range(16)))


def main(directory: Path, processes: int, calls: int, rollouts: int) -> int:
    """Exit code 0 where every process wrote everything."""
    children = []
    for process in range(processes):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                writer = RecordWriter(directory, durability_timeout_s=120)
                asyncio.run(write_all(writer, process, calls, rollouts))
                code = 0 if writer.close(60) else 1
            finally:
                os._exit(code)
        children.append(pid)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
