"""`make stack`: the same stack as plain processes, on machines without a container engine."""

import re
import signal
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stack.traffic import Sent, send_rollouts
from tools.backends.processes import BackendFailed, Jaeger, get_json

pytestmark = pytest.mark.stack

REPOSITORY = Path(__file__).resolve().parents[2]


class _Run:
    """One run of the command, with the addresses that it printed."""

    def __init__(self, data: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.stack", "--free-ports", "--data", str(data)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        text = ""
        for line in self._process.stdout:
            text += line
            if line.startswith("Try:"):
                break
        self.urls = dict(re.findall(r"^(\S+) +(http://\S+)", text, re.MULTILINE))

    def spans(self, sent: Sent) -> dict[str, set[str]]:
        """The ids of the stored spans by trace."""
        found = {}
        for trace_id in sent.spans:
            try:
                data = get_json(f"{self.urls['Jaeger']}/api/traces/{trace_id}")["data"]
            except urllib.error.HTTPError:
                data = []
            found[trace_id] = {span["spanID"] for trace in data for span in trace["spans"]}
        return found

    def interrupt(self) -> None:
        """What Ctrl-C does; everything must have ended in good order."""
        self._process.send_signal(signal.SIGINT)
        rest, _ = self._process.communicate(timeout=60)
        assert rest == "stopping\n"
        assert self._process.returncode == 0


def test_the_stack_runs_until_it_is_interrupted(
    backend_program: Callable[[str], Path], tmp_path: Path
) -> None:
    """It prints its addresses, takes spans at the first of them, keeps traces over a restart, and ends all on Ctrl-C."""
    for name in ("jaeger", "otelcol", "prometheus"):
        backend_program(name)
    first = _Run(tmp_path)
    sent = send_rollouts(first.urls["OTLP"], "processes", 2, 3)
    assert get_json(f"{first.urls['Prometheus']}/api/v1/query", query="up")["status"] == "success"
    first.interrupt()
    second = _Run(tmp_path)
    try:
        deadline = time.monotonic() + 60
        while (found := second.spans(sent)) != sent.spans:
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
    finally:
        second.interrupt()


def test_a_backend_that_can_not_start_says_why(
    backend_program: Callable[[str], Path], tmp_path: Path
) -> None:
    """When its port is taken, the error names the backend and carries the end of its log."""
    backend_program("jaeger")
    first = Jaeger(tmp_path / "first")
    first.start()
    try:
        port = int(first.query_url.rsplit(":", 1)[1])
        second = Jaeger(
            tmp_path / "second", port=lambda usual: port if usual == 16686 else usual + 4000
        )
        with pytest.raises(BackendFailed, match=r"(?s)jaeger ended .*address already in use"):
            second.start()
    finally:
        first.stop()
