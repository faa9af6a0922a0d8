"""The load of `benchmarks/capture.py` on the middleware of the package nemo-gym; run by that package's Python.

Takes the loads as JSON on stdin and prints one JSON object a load on stdout.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import capture_load as load  # type: ignore[import-not-found]
from nemo_gym import base_responses_api_model as reference  # type: ignore[import-not-found]


def main() -> None:
    """Answer one line a load."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as directory:
        store = reference.CaptureStore(directory)
        app = reference._CaptureMiddleware(load.answering, store=store, model_server_name="policy")
        for line in sys.stdin:
            given = json.loads(line)
            measured = load.run(
                app,
                load.request_of(given["size"]),
                calls=given["calls"],
                at_once=given["at_once"],
                name=given["name"],
                one=given["one"],
            )
            if not list(Path(directory).glob(f"{given['name']}-*.capture.jsonl")):
                raise SystemExit("the reference recorded nothing")
            sys.stdout.write(measured.as_json() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
