"""The demo's model as an engine for anybody."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import httpx
import pytest

from otel_gym.demo.engine import MODEL

PROGRAM = [sys.executable, "-m", "otel_gym.demo.engine"]


@pytest.mark.slow
def test_the_model_is_served_until_it_is_interrupted() -> None:
    """It says where it answers, answers there, and ends well at Ctrl-C with nothing left listening."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with subprocess.Popen([*PROGRAM, str(port)], stdout=subprocess.PIPE, text=True) as engine:
        try:
            assert engine.stdout is not None
            assert f"http://127.0.0.1:{port}/v1" in engine.stdout.readline()
            models = httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=30).json()
            assert [one["id"] for one in models["data"]] == [MODEL]
        finally:
            engine.send_signal(signal.SIGINT)
        assert engine.wait(30) == 0
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize("arguments", [[], ["eight"], ["70000"], ["80", "81"]])
def test_wrong_use_is_one_line(arguments: list[str]) -> None:
    """Anything but one port is answered with the usage and exit code 2."""
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ") and done.stderr.count("\n") == 1


def test_a_port_in_use_is_named() -> None:
    """A port that somebody else has is one line and exit code 2, before the model is loaded."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([*PROGRAM, str(port)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"port {port}: Address already in use; name another\n"
