"""The tracing stack without containers: Jaeger, the Collector and Prometheus as processes on loopback.

``python -m tools.stack`` (or ``make stack``) runs it on the usual ports until it is interrupted, with its data in
``${OTEL_GYM_CACHE:-~/.cache/otel-gym}/stack``. It loads the same files as ``docker compose up``. Grafana is the one part
that is missing: it can't be had as a Go module.
"""

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from tools.backends.build import BackendUnavailable, cache_root, program
from tools.backends.processes import (
    Backend,
    BackendFailed,
    Collector,
    Jaeger,
    PortChoice,
    Prometheus,
    any_free_port,
)


class Stack:
    """Jaeger, a Collector in front of it, and Prometheus; each part can be stopped and started by itself."""

    def __init__(
        self,
        folder: Path,
        store: str = "memory",
        *options: Path,
        port: PortChoice = any_free_port,
    ) -> None:
        """``options`` are further configuration files of the Collector."""
        self.jaeger = Jaeger(folder / "jaeger", store, port)
        self.collector = Collector(folder / "collector", self.jaeger, *options, port=port)
        self.prometheus = Prometheus(folder / "prometheus", self.collector, self.jaeger, port)
        self.jaeger.prometheus_url = self.prometheus.url

    @property
    def parts(self) -> tuple[Backend, ...]:
        """In the order of their start."""
        return (self.jaeger, self.collector, self.prometheus)

    def start(self) -> None:
        """Start every part; when one does not start, those before it are ended."""
        try:
            for part in self.parts:
                part.start()
        except BackendFailed:
            self.kill()
            raise

    def stop(self) -> None:
        """End every part in good order, the senders first."""
        for part in (self.prometheus, self.collector, self.jaeger):
            part.stop()

    def kill(self) -> None:
        """End every part at once."""
        for part in self.parts:
            part.kill()


def _usual(port: int) -> int:
    return port


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run the stack until it is interrupted; exit code 1 with the reason when it can't run."""
    parser = argparse.ArgumentParser(description="Run the tracing stack without containers.")
    parser.add_argument("--data", type=Path, default=cache_root().parent / "stack", metavar="DIR")
    parser.add_argument("--memory", action="store_true", help="keep traces in memory, not in files")
    parser.add_argument("--free-ports", action="store_true", help="take any free ports")
    parser.add_argument(
        "--option",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a further configuration file of the Collector, such as collector_config/options/*.yaml",
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    options = [path.resolve() for path in arguments.option]
    try:
        for name in ("jaeger", "otelcol", "prometheus"):
            program(name)
        store = "memory" if arguments.memory else "badger"
        port = any_free_port if arguments.free_ports else _usual
        stack = Stack(arguments.data.resolve(), store, *options, port=port)
        stack.start()
    except (BackendUnavailable, BackendFailed, OSError) as problem:
        sys.stderr.write(f"stack: {problem}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(
        f"""\
OTLP        {stack.collector.otlp_http} (HTTP), {stack.collector.otlp_grpc} (gRPC)
backfill    {stack.collector.backfill_http} (HTTP; counts nothing in the metrics)
Jaeger      {stack.jaeger.query_url}
Prometheus  {stack.prometheus.url}
data, logs  {arguments.data}

Try:  make demo OTLP={stack.collector.otlp_http}      (Ctrl-C here ends the stack)
"""
    )
    sys.stdout.flush()
    code = 0
    try:
        while all(part.running for part in stack.parts):
            time.sleep(1)
        ended = next(part.name for part in stack.parts if not part.running)
        sys.stderr.write(f"stack: {ended} ended; its log is in {arguments.data}\n")
        code = 1
    except KeyboardInterrupt:
        sys.stdout.write("stopping\n")
    stack.stop()
    return code


if __name__ == "__main__":
    sys.exit(main())
