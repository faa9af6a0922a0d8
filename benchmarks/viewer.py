"""The viewer on a run of 100,000 rollouts and on a rollout of 2,000 calls: time to first byte and memory.

    python benchmarks/viewer.py [--rollouts 100000] [--calls 2000] [--json]

The directory is made for the run and removed. The viewer is the real command in a process of its own. "cold" is the very first start, which has to read
every file; "warm" is the next one, with the index beside the files. Opening the warm run page is compared with reading the files once without the viewer
(names, bytes and JSON of every line), in the same run.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson

REPOSITORY = Path(__file__).resolve().parent.parent
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from tests.viewer.captures import conversation, write_run  # noqa: E402 (the path comes first)

START_S = 60.0


def make_run(directory: Path, rollouts: int, calls: int) -> int:
    """A run with so many rollouts of two calls each and one, `long`, of `calls` calls; its size in bytes."""
    write_run(directory)
    template = [json.dumps(r, separators=(",", ":")) for r in conversation("ROLLOUT", 2)]
    size = 0
    for number in range(rollouts):
        rollout_id = f"{number // 10}-{number % 10}"
        lines = []
        for place, line in enumerate(template):
            at = 1_790_000_000 + number * 0.02 + place
            line = line.replace("ROLLOUT", rollout_id)
            line = re.sub(
                r'"model_call_id":"\w+"', f'"model_call_id":"{number * 2 + place:032x}"', line
            )
            line = re.sub(r'"started_at":[\d.]+', f'"started_at":{at:.3f}', line)
            lines.append(re.sub(r'"completed_at":[\d.]+', f'"completed_at":{at + 0.8:.3f}', line))
        data = ("\n".join(lines) + "\n").encode()
        size += len(data)
        (directory / f"{rollout_id}.capture.jsonl").write_bytes(data)
    window = 40
    records = conversation("long", calls)
    with (directory / "long.capture.jsonl").open("wb") as file:
        for record in records:
            # A sliding context, as an agent that compacts its history has.
            messages = record["request"]["messages"]
            record["request"]["messages"] = messages[:2] + messages[2:][-window:]
            line_bytes = orjson.dumps(record) + b"\n"
            size += len(line_bytes)
            file.write(line_bytes)
    return size


def read_all(directory: Path) -> tuple[float, float]:
    """(seconds, seconds of processor time) to list the directory and read every line of it as JSON."""
    began, cpu = time.perf_counter(), time.process_time()
    for path in directory.glob("*.capture.jsonl"):
        with path.open("rb") as file:
            for line in file:
                orjson.loads(line)
    return time.perf_counter() - began, time.process_time() - cpu


class Viewer:
    """The command in a process of its own."""

    def __init__(self, directory: Path) -> None:
        command = "import sys; from otel_gym.cli.main import main; main()"
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, "view", str(directory), "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=REPOSITORY,
        )
        assert self.process.stdout is not None
        address = self.process.stdout.readline()
        self.start_s = time.perf_counter() - self.began
        match = re.search(r":(\d+)/", address)
        if match is None:
            raise RuntimeError(f"the viewer did not start: {address!r}")
        self.port = int(match[1])

    def get(self, path: str) -> tuple[float, float, int]:
        """(time to first byte, time to last byte, size in bytes) of a page, in seconds; a new connection each time."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read(1)
        first = time.perf_counter() - began
        size = 1 + len(answer.read())
        last = time.perf_counter() - began
        connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        return first, last, size

    def wait_complete(self, calls: int) -> float:
        """Seconds from the start until the index is complete and the page shows all calls."""
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            connection.request("GET", "/run.json?q=-")
            page = json.loads(connection.getresponse().read())
            connection.close()
            over_time = sum(point["calls"] for point in page["series"]["points"])
            if page["indexing"]["complete"] and page["totals"]["calls"] == over_time == calls:
                return time.perf_counter() - self.began
            time.sleep(0.25)

    def memory_bytes(self, field: str = "VmRSS") -> int:
        """Resident memory now, or at its highest (`VmHWM`)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
        assert match is not None
        return int(match[1]) * 1024

    def cpu_s(self) -> float:
        """Processor time that it took so far, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(timeout=30)


PAGES = {
    "run page": "/",
    "run page, sorted by tokens": "/?sort=tokens_in",
    "run page, filtered by id": "/?q=77",
    "run page, last": "/?page=1000",
    "run page as JSON": "/run.json",
    "rollout of 2 calls": "/rollout/{one}/",
    "rollout of many calls": "/rollout/long/",
    "rollout of many calls as JSON": "/rollout/long.json",
    "call page": "/rollout/long/call/{middle}/",
    "Jaeger: services": "/api/services",
    "Jaeger: search by tag": "/api/traces?service=otel-gym&start=0&tags=%7B%22otel_gym.rollout.id%22%3A%22{one}%22%7D",
    "Jaeger: 20 newest": "/api/traces?service=otel-gym&start=0&limit=20",
}


def measure(directory: Path, rollouts: int, calls: int) -> dict[str, Any]:
    """All figures."""
    wall, cpu = read_all(directory)
    result: dict[str, Any] = {"read_all_s": wall, "read_all_cpu_s": cpu}
    cold = Viewer(directory)
    result["cold_start_s"] = cold.start_s
    result["cold_first_byte_s"] = cold.get("/")[0]
    result["cold_complete_s"] = cold.wait_complete(2 * rollouts + calls)
    result["cold_cpu_s"] = cold.cpu_s()
    result["cold_peak_bytes"] = cold.memory_bytes("VmHWM")
    cold.stop()
    result["index_bytes"] = sum(
        path.stat().st_size for path in (directory / ".otel-gym" / "viewer").iterdir()
    )
    warm = Viewer(directory)
    first, _, _ = warm.get("/")
    result["warm_start_s"] = warm.start_s
    result["warm_first_byte_s"] = first
    result["warm_complete_s"] = warm.wait_complete(2 * rollouts + calls)
    one = f"{rollouts // 20}-2"
    pages = {}
    for name, path in PAGES.items():
        times = [
            warm.get(path.replace("{middle}", str(calls // 2)).replace("{one}", one))
            for _ in range(5)
        ]
        pages[name] = {
            "first_byte_s": statistics.median(spent[0] for spent in times),
            "last_byte_s": statistics.median(spent[1] for spent in times),
            "size_bytes": times[0][2],
        }
    result["pages"] = pages
    result["warm_bytes"] = warm.memory_bytes()
    result["warm_peak_bytes"] = warm.memory_bytes("VmHWM")
    warm.stop()
    result["ratios"] = {
        "processor time of the cold start / of reading all files": result["cold_cpu_s"] / cpu,
        "reading all files / first byte of the warm run page": result["read_all_s"] / first,
        "first byte of the rollout of many calls / of the one of 2": pages["rollout of many calls"]["first_byte_s"]
        / pages["rollout of 2 calls"]["first_byte_s"],
    }  # fmt: skip
    return result


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="otel-gym-viewer-"))
    try:
        size = make_run(directory / "run", arguments.rollouts, arguments.calls)
        result = measure(directory / "run", arguments.rollouts, arguments.calls)
    finally:
        shutil.rmtree(directory)
    result = {"rollouts": arguments.rollouts, "calls": arguments.calls, "run_bytes": size, **result}
    if arguments.json:
        print(json.dumps(result))
        return
    print(
        f"{arguments.rollouts:,} rollouts of 2 calls and one of {arguments.calls:,}: {size / 1e6:,.0f} MB"
    )
    print(
        f"reading all files, no viewer     {result['read_all_s']:8.2f} s, {result['read_all_cpu_s']:.2f} s of processor time"
    )
    print(f"cold: address after              {result['cold_start_s']:8.2f} s")
    print(f"cold: first byte of the run page {result['cold_first_byte_s']:8.3f} s")
    print(
        f"cold: index complete after       {result['cold_complete_s']:8.1f} s, {result['cold_cpu_s']:.1f} s of processor time, {result['index_bytes'] / 1e6:,.0f} MB on disk"
    )
    print(f"warm: address after              {result['warm_start_s']:8.2f} s")
    print(f"warm: first byte of the run page {result['warm_first_byte_s']:8.3f} s")
    print(f"warm: files checked after        {result['warm_complete_s']:8.2f} s")
    print(
        f"memory: cold peak {result['cold_peak_bytes'] / 1e6:,.0f} MB, warm {result['warm_bytes'] / 1e6:,.0f} MB, warm peak {result['warm_peak_bytes'] / 1e6:,.0f} MB"
    )
    for name, page in result["pages"].items():
        print(
            f"{name:32} first byte {page['first_byte_s'] * 1000:8.1f} ms, last {page['last_byte_s'] * 1000:8.1f} ms, {page['size_bytes'] / 1000:9,.0f} KB"
        )
    for name, ratio in result["ratios"].items():
        print(f"{name}: {ratio:,.1f}")


if __name__ == "__main__":
    main()
