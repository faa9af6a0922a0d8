"""`otel-gym view` as a command."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from otel_gym.cli.main import run


def _start(*arguments: str) -> subprocess.Popen[str]:
    code = "from otel_gym.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "view", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_it_prints_its_address_serves_and_ends_on_interrupt(run_dir: Path) -> None:
    """The first line names the directory and an address that answers; Ctrl-C ends it in good order."""
    process = _start(str(run_dir), "--port", "0")
    try:
        line = _first_line(process)
        match = re.fullmatch(rf"{re.escape(str(run_dir))} at (http://127\.0\.0\.1:\d+/)\n", line)
        assert match is not None, line
        with urllib.request.urlopen(match[1], timeout=20) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert process.returncode in (0, 130)
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.communicate()


def test_beyond_loopback_it_makes_a_token(run_dir: Path) -> None:
    """On all addresses the printed address carries a token, without which nothing is answered."""
    process = _start(str(run_dir), "--port", "0", "--host", "0.0.0.0")
    try:
        match = re.search(r":(\d+)/\?token=([\w-]{20,})$", _first_line(process).strip())
        assert match is not None
        base = f"http://127.0.0.1:{match[1]}/run.json"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(base, timeout=20)
        asked = urllib.request.Request(base, headers={"authorization": f"Bearer {match[2]}"})
        with urllib.request.urlopen(asked, timeout=20) as answer:
            assert answer.status == 200
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/no/such/directory"], "no such directory"),
        (["DIR", "--host", "no-such-host.invalid"], "--host"),
        (["DIR", "--jaeger-ui", "javascript:alert(1)"], "--jaeger-ui"),
        (["DIR", "--token", "short"], "--token"),
        (["DIR", "--port", "99999"], "port"),
    ],
)
def test_wrong_usage_is_one_line(
    run_dir: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be used is told in one line with exit code 2."""
    given = [str(run_dir) if one == "DIR" else one for one in arguments]
    assert run(["view", *given]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err and printed.err.count("\n") == 1


def test_a_port_in_use_is_named(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A port that somebody listens on is told with what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert run(["view", str(run_dir), "--port", port]) == 2
    assert f"127.0.0.1:{port}" in capsys.readouterr().err
