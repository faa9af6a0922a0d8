"""The load of `benchmarks/streams.py` on the middleware of the package nemo-gym; run by that package's Python.

Prints one JSON object a load on stdout.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import streams_load as load  # type: ignore[import-not-found]
from nemo_gym import base_responses_api_model as reference  # type: ignore[import-not-found]


def main() -> None:
    """Run the text load, then the two large events."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--chunks", type=int, required=True)
    arguments.add_argument("--streams", type=int, required=True)
    arguments.add_argument("--at-once", type=int, required=True)
    arguments.add_argument("--rounds", type=int, required=True)
    arguments.add_argument("--directory", required=True)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        store = reference.CaptureStore(directory)
        for name, chunks, streams, at_once in (
            ("warm", load.text_chunks(100), 4, 4),
            *(
                (f"text{number}", load.text_chunks(given.chunks), given.streams, given.at_once)
                for number in range(given.rounds)
            ),
            ("small", load.large_event(80_000), 4, 1),
            ("large", load.large_event(800_000), 1, 1),
        ):
            app = reference._CaptureMiddleware(
                load.streaming(chunks), store=store, model_server_name="policy"
            )
            measured = load.run(app, chunks, streams=streams, at_once=at_once, name=name)
            if not list(Path(directory).glob(f"{name}-*.capture.jsonl")):
                raise SystemExit("the reference recorded nothing")
            print(f'{{"name": "{name}", "measured": {measured.as_json()}}}', flush=True)


if __name__ == "__main__":
    main()
