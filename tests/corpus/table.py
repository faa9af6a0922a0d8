"""`python -m tests.corpus.table CORPUS`: how many exchanges of each dialect agree with the official SDKs' reading."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.capture.asgi import Rig
from tests.corpus.exchanges import exchanges
from tests.corpus.explained import EXPLAINED, EXPLAINED_BY_CHUNKS
from tests.corpus.serving import recorded, serve
from tests.corpus.summary import differences


async def main(corpus: Path) -> None:
    """Print one line a dialect, then every disagreement with its reason."""
    total: Counter[str] = Counter()
    agreeing: Counter[str] = Counter()
    strictly: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        rig = Rig(Path(directory) / "captures")
        for number, exchange in enumerate(exchanges(corpus)):
            await serve(rig, exchange, f"{number}-0", "whole")
            _, record = recorded(rig, f"{number}-0")
            found = differences(record, exchange, strictly=True)
            total[exchange.dialect] += 1
            strictly[exchange.dialect] += not found
            agreeing[exchange.dialect] += not differences(record, exchange)
            if found:
                reason = (EXPLAINED | EXPLAINED_BY_CHUNKS).get(exchange.path, "NOT EXPLAINED")
                print(f"{exchange.path}\n    {'; '.join(found)}\n    {reason}")  # noqa: T201 - its output
        rig.close()
    for dialect in sorted(total):
        counts = f"{agreeing[dialect]} of {total[dialect]} agree"
        print(f"{dialect}: {counts}, {strictly[dialect]} with the SDK's accumulator itself")  # noqa: T201 - its output


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
