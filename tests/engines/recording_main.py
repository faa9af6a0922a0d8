"""A recording engine as a process of its own, for tests that kill it: `python -m tests.engines.recording_main CHUNK...`.

Prints its URL; answers everything with the given chunks as an event stream and then says nothing more.
"""

from __future__ import annotations

import sys

from tests.engines.recording import RecordingEngine, stream_script


def main() -> None:
    script = stream_script(*(chunk.encode() for chunk in sys.argv[1:]))
    script.hold_after = len(script.chunks)
    with RecordingEngine() as engine:
        engine.default = script
        sys.stdout.write(engine.url + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
