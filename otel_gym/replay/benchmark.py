"""The published history benchmark, for this package and for a plain baseline, in one run.

    python -m otel_gym.replay.benchmark --turns 1 8 32 --prompt-tokens 2048 --generated-tokens 512 \\
        --layers 64 --top-k 8 --repeats 3 [--json]

Times are medians, each step on its own, of the wall clock and (`cpu`) of the process alone, which tells a slow
step from a busy machine; peaks are allocations of separate `tracemalloc` runs beyond what
was there before. After every restore and every replay, each field of each item is compared with the input.
`replay` makes plain lists, `wire` JSON text, and `again` the same text a second time, as the next call does.
Ratios are of CPU time, which for these steps is what a quiet machine's clock shows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from otel_gym.replay.benchmark_input import FORMS, in_form, responses
from otel_gym.replay.benchmark_published import SHAPE, times_better
from otel_gym.replay.benchmark_steps import OurSteps, PlainSteps, Steps, Stopwatch, peak_bytes

_MIB: Final = 1 << 20
_TIMES: Final = ("capture", "snapshot", "restore", "replay", "wire", "again", "checkpoints")
_PEAKS: Final = ("capture", "snapshot", "restore", "replay")


class ReplayDiffers(Exception):
    """A replayed field is not what was captured; the benchmark's figures would mean nothing."""


def measure(steps: Steps, inputs: list[Any], expected: list[Any], repeats: int) -> dict[str, Any]:
    """The figures of one implementation for one form of input: seconds, bytes and peaks by step."""
    runs = [_measure_once(steps, inputs, expected) for _ in range(repeats)]
    history = steps.capture(inputs)
    archive = steps.snapshot(history)
    restored = steps.restore(archive)
    return {
        **runs[-1]["sizes"],
        **{
            kind: {step: statistics.median(run[kind][step] for run in runs) for step in _TIMES}
            for kind in ("seconds", "cpu_seconds")
        },
        "peak_bytes": {
            "capture": peak_bytes(lambda: steps.capture(inputs)),
            "snapshot": peak_bytes(lambda: steps.snapshot(history)),
            "restore": peak_bytes(lambda: steps.restore(archive)),
            "replay": peak_bytes(lambda: steps.replay(restored)),
        },
    }


def _measure_once(steps: Steps, inputs: list[Any], expected: list[Any]) -> dict[str, Any]:
    watch = Stopwatch()
    history = watch.timed("capture", lambda: steps.capture(inputs))
    archive = watch.timed("snapshot", lambda: steps.snapshot(history))
    restored = watch.timed("restore", lambda: steps.restore(archive))
    items = watch.timed("replay", lambda: steps.replay(restored))
    _check(items, expected)
    del items
    steps.forget()
    for step in ("wire", "again"):
        text = watch.timed(step, lambda: steps.wire(restored))
        _check(json.loads(text), expected)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        files = watch.timed("checkpoints", lambda: steps.checkpoints(history, place))
    sizes = {
        "archive_bytes": len(archive),
        "wire_bytes": len(text),
        "checkpoint_bytes": files[0],
        "store_bytes": files[1],
    }
    return {"seconds": watch.seconds, "cpu_seconds": watch.cpu_seconds, "sizes": sizes}


def _check(items: list[Any], expected: list[Any]) -> None:
    if len(items) != len(expected):
        raise ReplayDiffers(f"{len(items)} items came back of {len(expected)}")
    for index, (item, wanted) in enumerate(zip(items, expected, strict=True)):
        if list(item) != list(wanted):
            raise ReplayDiffers(f"item {index}: its fields are {list(item)}")
        for field, value in wanted.items():
            # repr tells 1 from 1.0 and 0.0 from -0.0, which compare equal
            if item[field] != value or repr(item[field]) != repr(value):
                raise ReplayDiffers(f"item {index}: {field} differs")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All rows, and ours as ratios to the plain baseline and to the published figures."""
    rows = []
    as_published = all(getattr(arguments, name) == value for name, value in SHAPE.items())
    for turns in arguments.turns:
        made = responses(
            turns,
            prompt_tokens=arguments.prompt_tokens,
            generated_tokens=arguments.generated_tokens,
            layers=arguments.layers,
            top_k=arguments.top_k,
        )
        for form in FORMS:
            inputs = in_form(form, made)
            expected = [
                item
                for response in in_form("string" if form == "string" else "lists", made)
                for item in response["output"]
            ]
            ours = measure(OurSteps(), inputs, expected, arguments.repeats)
            row = {"turns": turns, "form": form, "otel-gym": ours}
            if not arguments.no_baseline:
                plain = measure(PlainSteps(), inputs, expected, 1)
                row |= {"plain json": plain, "times_better": _ratios(ours, plain)}
            if as_published and form == "lists":
                row["times_better_than_published"] = times_better(turns, ours)
            rows.append(row)
    return {
        "parameters": {
            "prompt_tokens": arguments.prompt_tokens,
            "generated_tokens": arguments.generated_tokens,
            "layers": arguments.layers,
            "top_k": arguments.top_k,
            "repeats": arguments.repeats,
            "python": sys.version.split()[0],
        },
        "rows": rows,
    }


def _ratios(ours: dict[str, Any], plain: dict[str, Any]) -> dict[str, float]:
    taken, theirs = ours["cpu_seconds"], plain["cpu_seconds"]
    ratios = {name: theirs[name] / max(1e-9, taken[name]) for name in _TIMES}
    ratios |= {
        f"peak_{name}": plain["peak_bytes"][name] / max(1, ours["peak_bytes"][name])
        for name in _PEAKS
    }
    for size in ("archive_bytes", "checkpoint_bytes"):
        ratios[size] = plain[size] / max(1, ours[size])
    return {name: round(ratio, 2) for name, ratio in ratios.items()}


def _print_tables(result: dict[str, Any], out: Any) -> None:
    names = [name for name in ("otel-gym", "plain json") if name in result["rows"][0]]
    head = f"{'turns':>5} {'input':<7} {'':<14}"
    print(f"{head} {'archive MiB':>11}", *(f"{name + ' s':>13}" for name in _TIMES), file=out)
    for row in result["rows"]:
        for name in names:
            figures = row[name]
            archive = figures["archive_bytes"] / _MIB
            for kind, mark in (("seconds", ""), ("cpu_seconds", " cpu")):
                cells = [f"{figures[kind][step]:13.4f}" for step in _TIMES]
                label = f"{row['turns']:>5} {row['form']:<7} {name + mark:<14}"
                print(f"{label} {archive:11.2f}", *cells, file=out)
    print(f"\n{head}", *(f"{'peak ' + name:>13}" for name in _PEAKS), file=out, end="")
    print(f"{'wire MiB':>14}{'checkpoints':>14}{'file after':>14}   (MiB)", file=out)
    for row in result["rows"]:
        for name in names:
            figures = row[name]
            cells = [f"{figures['peak_bytes'][step] / _MIB:13.2f}" for step in _PEAKS]
            sizes = ("wire_bytes", "checkpoint_bytes", "store_bytes")
            more = [f"{figures[size] / _MIB:13.2f}" for size in sizes]
            print(f"{row['turns']:>5} {row['form']:<7} {name:<14}", *cells, *more, file=out)
    for row in result["rows"]:
        compared = {"plain": row["times_better"]} if "times_better" in row else {}
        for source, ratios in (compared | row.get("times_better_than_published", {})).items():
            listed = ", ".join(f"{name} {ratio}x" for name, ratio in ratios.items())
            print(f"\n{row['turns']} turns, {row['form']}, {source} / ours: {listed}", file=out)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its tables, or its figures as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m otel_gym.replay.benchmark", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--turns", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompt-tokens", type=int, default=2048)
    parser.add_argument("--generated-tokens", type=int, default=512)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-baseline", action="store_true", help="leave the plain baseline out")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    arguments = parser.parse_args(argv)
    result = run(arguments)
    if arguments.json:
        json.dump(result, sys.stdout)
        sys.stdout.write("\n")
    else:
        _print_tables(result, sys.stdout)


if __name__ == "__main__":
    main()
