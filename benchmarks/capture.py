"""What durable capture costs a JSON call, against bare durable writes of the same bytes in the same run.

    python benchmarks/capture.py [--reference-python PYTHON] [--quick] [--directory DIR] [--json]

Loads: 1 KB and 200 KB requests, each worker in a rollout of its own or all in one, 1, 16 and 64 at once. Beside each other, in turns:

- capture off and capture on, through the middleware;
- bare threads: one thread a call in flight that does write and fdatasync and nothing else, no event loop, no record;
- bare awaited: the same awaited from an event loop, which is the least that an asynchronous server can do;
- the reference middleware, with the package nemo-gym in the environment of `--reference-python`.

Claims: with distinct rollouts at least 0.9 of the bare awaited rate (1 KB, 64 at once); in one rollout at least 5 times the reference (64 at once);
event-loop lag p99 under 5 ms with capture on at 64 at once. What bounds each figure is said with it. Exit code 1 where a claim is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import capture_load as load  # type: ignore[import-not-found]

from otel_gym.capture.capturing import Capture
from otel_gym.capture.middleware import CaptureMiddleware
from otel_gym.capture.writer import RecordWriter
from otel_gym.correlation.run import open_run
from otel_gym.servers.listening import tune_interpreter
from otel_gym.settings import BridgeSettings

SIZES = {"1 KB": 1_000, "200 KB": 200_000}
AT_ONCE = (1, 16, 64)


class Reference:
    """The reference middleware in a process of its own."""

    def __init__(self, python: str, directory: Path) -> None:
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("capture_reference.py")), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, **given: Any) -> Any:
        """One load."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                return load.Measured(**json.loads(line))
        raise SystemExit("the reference failed")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> int:
    """Measure, print, judge."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--reference-python", help="a Python with nemo-gym==0.7.0")
    arguments.add_argument(
        "--directory", help="where to write; default: the system's temporary directory"
    )
    arguments.add_argument(
        "--rounds", type=int, default=3, help="turns of each load; the median counts"
    )
    arguments.add_argument(
        "--quick", action="store_true", help="only the loads of the claims, one round"
    )
    arguments.add_argument(
        "--untuned",
        action="store_true",
        help="leave the interpreter as it is, unlike otel-gym serve",
    )
    arguments.add_argument("--json", action="store_true", help="print every figure as JSON")
    given = arguments.parse_args()
    if not given.untuned:
        tune_interpreter()
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        directory = Path(name)
        reference = Reference(given.reference_python, directory) if given.reference_python else None
        try:
            figures = measure(given, directory, reference)
        finally:
            if reference is not None:
                reference.close()
    missed = judge(figures)
    if given.json:
        print(json.dumps({"figures": figures, "missed": missed}))
    return 1 if missed else 0


def measure(given: Any, directory: Path, reference: Reference | None) -> dict[str, Any]:
    """Every load in every form, the forms in turns."""
    writer = RecordWriter(directory / "captures", queue_max_bytes=1 << 30)
    capture = Capture(
        writer, open_run(directory / "captures"), BridgeSettings(), model_server_name="policy"
    )
    off = CaptureMiddleware(load.answering, capture=None)
    on = CaptureMiddleware(load.answering, capture=capture)
    load.run(on, load.request_of(1000), calls=200, at_once=8, name="warm", one=False)
    line_bytes = _line_bytes(writer, "warm-0")
    figures: dict[str, Any] = {}
    serial = 0
    for label, size in SIZES.items():
        request = load.request_of(size)
        line = b"x" * (line_bytes + size - 1000)
        for one in (False, True):
            for at_once in AT_ONCE:
                if given.quick and (at_once != 64 or size > 1000):
                    continue
                calls = _calls(size, at_once)
                turns: dict[str, list[Any]] = {}
                for _ in range(1 if given.quick else given.rounds):
                    serial += 1
                    options = {"calls": calls, "at_once": at_once, "one": one}
                    for form, app in (("off", off), ("on", on)):
                        turns.setdefault(form, []).append(
                            load.run(app, request, name=f"{form}{serial}", **options)
                        )
                    for form, bare in load.BARE.items():
                        turns.setdefault(form, []).append(bare(directory / "bare", line, **options))
                    if reference is not None:
                        turns.setdefault("reference", []).append(
                            reference.run(size=size, name=f"ref{serial}", **options)
                        )
                    for path in (directory / "captures").glob(f"on{serial}-*"):
                        path.unlink()
                where = (
                    f"{label}, {'one rollout' if one else 'distinct rollouts'}, {at_once} at once"
                )
                figures[where] = {form: _median(runs) for form, runs in turns.items()}
                _show(where, figures[where])
    writer.close(30)
    return figures


def judge(figures: dict[str, Any]) -> list[str]:
    """Print every claim; gives those that are missed."""
    distinct = figures["1 KB, distinct rollouts, 64 at once"]
    one = figures["1 KB, one rollout, 64 at once"]
    claims = {
        "distinct rollouts, of the bare awaited rate (at least 0.9)": (
            _ratio(distinct, "bare awaited"),
            lambda value: value >= 0.9,
        ),
        "event-loop lag p99 with capture on, distinct rollouts, ms (under 5)": (
            distinct["on"]["lag_p99_ms"],
            lambda value: value < 5,
        ),
        "event-loop lag p99 with capture on, one rollout, ms (under 5)": (
            one["on"]["lag_p99_ms"],
            lambda value: value < 5,
        ),
    }
    if "reference" in one:
        claims["one rollout, times the reference (at least 5)"] = (
            _ratio(one, "reference"),
            lambda value: value >= 5,
        )
        claims["distinct rollouts, times the reference (at least 1)"] = (
            _ratio(distinct, "reference"),
            lambda value: value >= 1,
        )
    missed = []
    for name, (value, holds) in claims.items():
        kept = holds(value)
        print(f"{'kept  ' if kept else 'MISSED'} {name}: {value:.2f}")
        if not kept:
            missed.append(name)
    print(
        f"       distinct rollouts, of the bare threads rate: {_ratio(distinct, 'bare threads'):.2f}"
    )
    return missed


def _ratio(forms: dict[str, Any], base: str) -> float:
    return float(forms["on"]["calls_a_second"] / forms[base]["calls_a_second"])


def _calls(size: int, at_once: int) -> int:
    if at_once == 1:
        return 400
    return 6400 if size <= 1000 else 1280


def _line_bytes(writer: RecordWriter, rollout_id: str) -> int:
    return next(length for _, length, _ in writer.store.iter_records(rollout_id))


def _median(runs: list[Any]) -> dict[str, float]:
    fields = vars(runs[0])
    return {name: statistics.median(getattr(run, name) for run in runs) for name in fields}


def _show(where: str, forms: dict[str, Any]) -> None:
    print(f"\n{where}")
    for form, one in forms.items():
        lag = f"  loop lag p99 {one['lag_p99_ms']:.2f} ms" if one["lag_p99_ms"] else ""
        print(
            f"  {form:13} {one['calls_a_second']:8.0f} calls/s  p50 {one['p50_ms']:7.3f} ms  p99 {one['p99_ms']:7.3f} ms"
            f"  CPU {one['cpu_us_a_call']:6.0f} us{lag}"
        )
    added = forms["on"]["p50_ms"] - forms["off"]["p50_ms"]
    print(f"  added by capture: p50 {added:.3f} ms; bounded by {_bound(forms['on'])}")


def _bound(one: dict[str, float]) -> str:
    """What kept the calls from being faster."""
    if _cpu_bound(one):
        return "the interpreter: one thread at a time makes records and serves calls"
    load_average, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load_average > processors + 1:
        return f"other processes (load average {load_average:.0f} on {processors} CPUs): repeat on a quiet machine"
    return "the disk's syncs"


def _cpu_bound(one: dict[str, float]) -> bool:
    """Whether the process was busy most of the time."""
    return one["cpu_us_a_call"] * one["calls_a_second"] / 1e6 > 0.7


if __name__ == "__main__":
    sys.exit(main())
