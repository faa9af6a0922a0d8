"""What capture costs a stream, against a bare ASGI tee in the same run.

    python benchmarks/streams.py [--reference-python PYTHON]

Claims: under 2 µs a chunk added on the event loop and under 5 µs of CPU a chunk in all (2,000-chunk streams, 16 at
once); an event of 800 KB in 1 KiB pieces costs at most twice the time per byte of one of 80 KB; with the package
nemo-gym in the environment of `--reference-python`, at least 5 times the streams per second of its middleware.

Exit code 1 where a claim is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import streams_load as load  # type: ignore[import-not-found]

from otel_gym.capture.capturing import Capture
from otel_gym.capture.middleware import CaptureMiddleware
from otel_gym.capture.writer import RecordWriter
from otel_gym.correlation.run import open_run
from otel_gym.settings import BridgeSettings

LOOP_US, CPU_US, LINEAR, REFERENCE = 2.0, 5.0, 2.0, 5.0


def main() -> int:
    """Measure, print, judge."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--chunks", type=int, default=2000, help="chunks of a stream")
    arguments.add_argument("--streams", type=int, default=64, help="streams of a round")
    arguments.add_argument("--at-once", type=int, default=16)
    arguments.add_argument(
        "--rounds", type=int, default=7, help="rounds; the best of each kind counts"
    )
    arguments.add_argument(
        "--directory", default=None, help="where to capture; a temporary directory else"
    )
    arguments.add_argument(
        "--reference-python", default=None, help="Python of an environment with nemo-gym"
    )
    arguments.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        figures = measure(given, Path(directory))
        if given.reference_python:
            figures |= against_reference(given, directory, figures)
    missed = judge(figures)
    if given.json:
        print(json.dumps({**figures, "missed": missed}))
    return 1 if missed else 0


def measure(given: Any, directory: Path) -> dict[str, float]:
    """Our figures."""
    writer = RecordWriter(directory / "captures")
    capture = Capture(
        writer,
        open_run(directory / "captures"),
        BridgeSettings(),
        model_server_name="policy",
        engine=None,
    )

    fastest: dict[str, float] = {}

    def best(chunks: list[bytes], streams: int, at_once: int, name: str) -> tuple[Any, Any]:
        tees, captured = [], []
        for number in range(given.rounds):
            tees.append(
                load.run(
                    load.Tee(load.streaming(chunks)),
                    chunks,
                    streams=streams,
                    at_once=at_once,
                    name="tee",
                )
            )
            app = CaptureMiddleware(load.streaming(chunks), capture=capture)
            captured.append(
                load.run(app, chunks, streams=streams, at_once=at_once, name=f"{name}-{number}")
            )
        fastest[name] = max(one.streams_a_second for one in captured)
        return min(tees, key=lambda one: one.cpu_s), min(captured, key=lambda one: one.cpu_s)

    best(load.text_chunks(100), 4, 4, "warm")
    tee, ours = best(load.text_chunks(given.chunks), given.streams, given.at_once, "text")
    small_tee, small = best(load.large_event(80_000), 16, 1, "small")
    large_tee, large = best(load.large_event(800_000), 4, 1, "large")
    recorded = len(list((directory / "captures").glob("text-*.capture.jsonl")))
    writer.close(30.0)
    if recorded != given.streams * given.rounds:
        raise SystemExit(f"{recorded} rollouts were recorded, not {given.streams * given.rounds}")
    small_ns = (small.cpu_s - small_tee.cpu_s) / (small.streams * 80_000) * 1e9
    large_ns = (large.cpu_s - large_tee.cpu_s) / (large.streams * 800_000) * 1e9
    return {
        "tee_loop_us_a_chunk": tee.loop_us_a_chunk,
        "loop_us_a_chunk": ours.loop_us_a_chunk,
        "loop_us_a_chunk_added": ours.loop_us_a_chunk - tee.loop_us_a_chunk,
        "cpu_us_a_chunk_added": ours.cpu_us_a_chunk - tee.cpu_us_a_chunk,
        "cpu_us_a_chunk": ours.cpu_us_a_chunk,
        "streams_a_second": fastest["text"],
        "tee_streams_a_second": tee.streams_a_second,
        "ns_a_byte_80_kb_event": small_ns,
        "ns_a_byte_800_kb_event": large_ns,
        "ratio_800_to_80_kb": large_ns / small_ns,
    }


def against_reference(given: Any, directory: str, figures: dict[str, float]) -> dict[str, float]:
    """The same load on the middleware of nemo-gym, in its own environment."""
    command = [
        *(given.reference_python, str(Path(__file__).with_name("streams_reference.py"))),
        *("--chunks", str(given.chunks), "--streams", str(given.at_once)),
        *("--at-once", str(given.at_once), "--directory", directory),
        *("--rounds", str(min(given.rounds, 3))),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the reference failed: {done.stderr[-2000:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"name"')]
    theirs = {one["name"]: load.Measured(**one["measured"]) for one in map(json.loads, lines)}
    text = [one for name, one in theirs.items() if name.startswith("text")]
    small, large = theirs["small"], theirs["large"]
    fastest = max(one.streams_a_second for one in text)
    cheapest = min(one.cpu_us_a_chunk for one in text)
    return {
        "reference_streams_a_second": fastest,
        "reference_cpu_us_a_chunk": cheapest,
        "reference_ratio": figures["streams_a_second"] / fastest,
        "reference_cpu_ratio": cheapest / figures["cpu_us_a_chunk"],
        "reference_ratio_800_to_80_kb": (large.cpu_s / 800_000)
        / (small.cpu_s / small.streams / 80_000),
    }


def judge(figures: dict[str, float]) -> list[str]:
    """Print every figure and every claim; gives the claims that are missed."""
    for name, value in figures.items():
        print(f"{name:32} {value:10.2f}", file=sys.stderr)
    claims = [
        ("loop_us_a_chunk_added", figures["loop_us_a_chunk_added"], "<", LOOP_US),
        ("cpu_us_a_chunk_added", figures["cpu_us_a_chunk_added"], "<", CPU_US),
        ("ratio_800_to_80_kb", figures["ratio_800_to_80_kb"], "<", LINEAR),
    ]
    if "reference_ratio" in figures:
        claims.append(("reference_ratio", figures["reference_ratio"], ">", REFERENCE))
    missed = []
    for name, value, sign, bound in claims:
        kept = value < bound if sign == "<" else value > bound
        print(
            f"{'kept  ' if kept else 'MISSED'} {name} {value:.2f} {sign} {bound:g}", file=sys.stderr
        )
        if not kept:
            missed.append(name)
    return missed


if __name__ == "__main__":
    sys.exit(main())
