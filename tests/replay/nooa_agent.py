"""A NOOA agent, run by `test_nooa` in a Python of its own.

first URL FOLDER     work once; keep the agent as JSON and in NOOA's SQLite store
json URL FOLDER      restore it from the JSON and work again
sqlite URL FOLDER    restore it from the store and work again
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from nooa import Agent
from nooa.storage import SQLiteStorageManager
from pydantic import BaseModel

from otel_gym.replay import ReplayScope
from otel_gym.replay.nooa import ReplayLLM, restore_agent, snapshot_agent


class Helper(Agent):
    """You help."""

    remembered: int = 0

    async def work(self, question: str) -> str:
        """Answer the question."""
        ...  # noqa: PIE790  # NOOA gives a method to the model only if this is its body


class Answer(BaseModel):
    value: int


async def main(mode: str, url: str, folder: Path) -> None:
    llm = ReplayLLM(url, "alias", ReplayScope("policy", "alias"), 10, rollout_id="t-0")
    path = folder / "agent.json"
    asked = None
    if mode == "first":
        # From inside a running loop, as NOOA's synchronous callers are.
        asked = llm.call([{"role": "user", "content": "six?"}], output_model=Answer).content.value
    with SQLiteStorageManager(folder / "agent.db") as storage:
        agent = Helper(llm=llm) if mode == "json" else Helper(llm=llm, storage=storage)
        if mode == "json":
            restore_agent(json.loads(path.read_text()), agent)
        elif mode == "sqlite":
            assert storage.restore_latest_snapshot(agent)
        remembered = agent.remembered
        answer = await agent.work("six times seven?")
        if mode == "first":
            agent.remembered = 42
            path.write_text(json.dumps(snapshot_agent(agent)))
            storage.save_snapshot(agent)
    told = {
        "asked": asked,
        "answer": answer,
        "remembered": remembered,
        "gaps": sorted(llm.policy.gaps),
        "calls": llm.policy.policy_calls,
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
