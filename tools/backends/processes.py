"""Run the real backends as plain processes on loopback, with the very files of ``collector_config/``.

Every address and folder that those files declare as an environment variable is set here; nothing is edited. Each process
writes its output into a log file, whose end is part of the error when it does not start.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tools.backends.build import program

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIGURATION = REPOSITORY / "collector_config"
PortChoice = Callable[[int], int]
"""Gives the port to listen on in place of a usual one."""
START_SECONDS = 60.0
STOP_SECONDS = 20.0


class BackendFailed(Exception):
    """A backend did not start, stop or answer; the message carries the end of its log."""


_given_ports: set[int] = set()


def free_port() -> int:
    """A loopback port that nobody listens on and that was not given before.

    It lies below the range that the kernel hands out by itself, in a part of its own for each process id, so that tests
    that run at the same time do not meet.
    """
    first = 20_000 + os.getpid() % 24 * 500
    for port in random.sample(range(first, first + 500), 500):
        if port in _given_ports:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given_ports.add(port)
        return port
    raise BackendFailed(f"no free port between {first} and {first + 499}")


def any_free_port(_usual: int) -> int:
    """Any free loopback port, whatever the usual one is."""
    return free_port()


def get_json(url: str, **query: str) -> Any:
    """The JSON answer of a GET request."""
    full = f"{url}?{urllib.parse.urlencode(query)}" if query else url
    with urllib.request.urlopen(full, timeout=30) as answer:
        return json.load(answer)


class Backend:
    """One backend process: ``start`` waits until it is ready, ``stop`` asks it to end, ``kill`` does not ask."""

    name = "backend"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def command(self) -> list[str]:
        """The program and its arguments."""
        raise NotImplementedError

    @property
    def environment(self) -> Mapping[str, str]:
        """What is set on top of the caller's environment."""
        return {}

    @property
    def ready_url(self) -> str:
        """Answers 200 once the process takes work."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        """The process id; the process must have been started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        assert not self.running
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if not self.running:
                code = self._process.returncode
                raise BackendFailed(f"{self.name} ended with exit code {code}: {self._log_end()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BackendFailed(f"{self.name} is not ready in time: {self._log_end()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the process in good order (SIGTERM); no effect when it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(with_signal)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.ready_url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _log_end(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


class Jaeger(Backend):
    """Jaeger with its traces in memory (``store="memory"``) or in Badger files that outlive it (``"badger"``)."""

    name = "jaeger"

    def __init__(
        self, folder: Path, store: str = "memory", port: PortChoice = any_free_port
    ) -> None:
        super().__init__(folder)
        self.prometheus_url = "http://127.0.0.1:9"
        """Where span metrics are read for the Monitor page; set it before the start."""
        files = {"memory": "memory.yaml", "badger": "config.yaml"}
        self._file = CONFIGURATION / "jaeger" / files[store]
        self._query, self._query_grpc = port(16686), port(16685)
        self._grpc, self._http = port(14317), port(14318)
        self._health, self._metrics = port(13134), port(8887)

    @property
    def query_url(self) -> str:
        """The base URL of the UI and the query API."""
        return f"http://127.0.0.1:{self._query}"

    @property
    def otlp_http(self) -> str:
        """The base URL for OTLP over HTTP, without ``/v1/traces``."""
        return f"http://127.0.0.1:{self._http}"

    @property
    def otlp_grpc(self) -> str:
        """The URL for OTLP over gRPC."""
        return f"http://127.0.0.1:{self._grpc}"

    @property
    def metrics_target(self) -> str:
        """Host and port where Prometheus scrapes Jaeger's own metrics."""
        return f"127.0.0.1:{self._metrics}"

    @property
    def command(self) -> list[str]:
        return [str(program("jaeger")), "--config", str(self._file)]

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "JAEGER_OTLP_GRPC": f"127.0.0.1:{self._grpc}",
            "JAEGER_OTLP_HTTP": f"127.0.0.1:{self._http}",
            "JAEGER_QUERY_HTTP": f"127.0.0.1:{self._query}",
            "JAEGER_QUERY_GRPC": f"127.0.0.1:{self._query_grpc}",
            "JAEGER_HEALTH": f"127.0.0.1:{self._health}",
            "JAEGER_METRICS_HOST": "127.0.0.1",
            "JAEGER_METRICS_PORT": str(self._metrics),
            "JAEGER_BADGER": str(self.folder / "badger"),
            "JAEGER_UI_CONFIG": str(CONFIGURATION / "jaeger" / "ui.json"),
            "PROMETHEUS_URL": self.prometheus_url,
        }

    @property
    def ready_url(self) -> str:
        return f"http://127.0.0.1:{self._health}/status"

    def trace(self, trace_id: str) -> dict[str, Any] | None:
        """One trace in Jaeger's own JSON (``traceID``, ``spans``, ``processes``), or None when there is none."""
        try:
            data = get_json(f"{self.query_url}/api/traces/{trace_id}")["data"]
        except urllib.error.HTTPError as problem:
            if problem.code == 404:
                return None
            raise
        return data[0] if data else None

    def traces(self, service: str = "otel-gym", **query: str) -> list[dict[str, Any]]:
        """The traces that a search finds; the parameters are those of ``GET /api/traces``."""
        found = get_json(f"{self.query_url}/api/traces", service=service, **query)
        return list(found["data"] or [])


class Collector(Backend):
    """The Collector with ``collector_config/collector.yaml``, in front of one Jaeger."""

    name = "collector"

    def __init__(
        self, folder: Path, jaeger: Jaeger, *options: Path, port: PortChoice = any_free_port
    ) -> None:
        """``options`` are further configuration files, merged into ``collector.yaml`` in their order."""
        super().__init__(folder)
        self._jaeger = jaeger
        self._options = options
        self._grpc, self._http = port(4317), port(4318)
        self._backfill_grpc, self._backfill_http = port(4319), port(4320)
        self._health, self._metrics = port(13133), port(8888)
        self._spans, self._rollouts = port(8889), port(8890)

    @property
    def otlp_http(self) -> str:
        """The base URL for OTLP over HTTP, without ``/v1/traces``."""
        return f"http://127.0.0.1:{self._http}"

    @property
    def otlp_grpc(self) -> str:
        """The URL for OTLP over gRPC."""
        return f"http://127.0.0.1:{self._grpc}"

    @property
    def backfill_http(self) -> str:
        """As ``otlp_http``, for spans of the past, which must not count in today's metrics."""
        return f"http://127.0.0.1:{self._backfill_http}"

    @property
    def metrics_target(self) -> str:
        """Host and port of the Collector's own metrics."""
        return f"127.0.0.1:{self._metrics}"

    @property
    def spans_target(self) -> str:
        """Host and port of the metrics made of spans, and of those that came in over OTLP."""
        return f"127.0.0.1:{self._spans}"

    @property
    def rollouts_target(self) -> str:
        """Host and port of the short-lived series by rollout id."""
        return f"127.0.0.1:{self._rollouts}"

    @property
    def command(self) -> list[str]:
        files = (CONFIGURATION / "collector.yaml", *self._options)
        return [str(program("otelcol")), *(f"--config={path}" for path in files)]

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "COLLECTOR_OTLP_GRPC": f"127.0.0.1:{self._grpc}",
            "COLLECTOR_OTLP_HTTP": f"127.0.0.1:{self._http}",
            "COLLECTOR_BACKFILL_GRPC": f"127.0.0.1:{self._backfill_grpc}",
            "COLLECTOR_BACKFILL_HTTP": f"127.0.0.1:{self._backfill_http}",
            "COLLECTOR_HEALTH": f"127.0.0.1:{self._health}",
            "COLLECTOR_METRICS_HOST": "127.0.0.1",
            "COLLECTOR_METRICS_PORT": str(self._metrics),
            "COLLECTOR_SPAN_METRICS": self.spans_target,
            "COLLECTOR_ROLLOUT_METRICS": self.rollouts_target,
            "COLLECTOR_QUEUE": str(self.folder / "queue"),
            "GOMEMLIMIT": os.environ.get("GOMEMLIMIT", "600MiB"),  # as in docker-compose.yml
            "JAEGER_OTLP": self._jaeger.otlp_grpc.removeprefix("http://"),
        }

    @property
    def ready_url(self) -> str:
        return f"http://127.0.0.1:{self._health}/"


class Prometheus(Backend):
    """Prometheus with ``collector_config/prometheus``; only the target lists are its own."""

    name = "prometheus"

    def __init__(
        self, folder: Path, collector: Collector, jaeger: Jaeger, port: PortChoice = any_free_port
    ) -> None:
        super().__init__(folder)
        self._port = port(9090)
        self._configuration = folder / "configuration"
        self._link_configuration(
            {
                "spans": collector.spans_target,
                "rollouts": collector.rollouts_target,
                "collector": collector.metrics_target,
                "jaeger": jaeger.metrics_target,
            }
        )

    def _link_configuration(self, targets: Mapping[str, str]) -> None:
        """Prometheus reads no environment variables: its targets are files beside the configuration."""
        shutil.rmtree(self._configuration, ignore_errors=True)
        (self._configuration / "targets").mkdir(parents=True)
        for name in ("prometheus.yml", "rules"):
            (self._configuration / name).symlink_to(CONFIGURATION / "prometheus" / name)
        for name, address in targets.items():
            listed = json.dumps([{"targets": [address]}])
            (self._configuration / "targets" / f"{name}.json").write_text(listed)

    @property
    def url(self) -> str:
        """The base URL of the API."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def command(self) -> list[str]:
        return [
            str(program("prometheus")),
            f"--config.file={self._configuration / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--enable-feature=exemplar-storage,created-timestamp-zero-ingestion",
        ]

    @property
    def ready_url(self) -> str:
        return f"{self.url}/-/ready"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query, as a list of ``{"metric": {...}, "value": [time, text]}``."""
        answer = get_json(f"{self.url}/api/v1/query", query=expression)
        return list(answer["data"]["result"])

    def exemplars(self, expression: str) -> list[dict[str, Any]]:
        """The exemplars of the series that an expression names, in the last hour."""
        now = time.time()
        answer = get_json(
            f"{self.url}/api/v1/query_exemplars",
            query=expression,
            start=str(now - 3600),
            end=str(now + 60),
        )
        return [exemplar for series in answer["data"] for exemplar in series["exemplars"]]
