"""Where the output goes: any locale, any width, a full disk, a reader that leaves, no reader at all."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from otel_gym.capture.store import CaptureStore
from tests.cli.test_show import record

PROGRAM = [sys.executable, "-c", "from otel_gym.cli.main import main; main()"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    store = CaptureStore(tmp_path / "captures")
    for number in range(3):
        store.record("7-2", record(number, stream={"chunks": 3, "terminal": "complete"}))
    return store.root


def otel_gym(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        env={"PATH": os.environ["PATH"], **environment},
        timeout=60,
    )


def through_shell(directory: Path, redirected: str) -> subprocess.CompletedProcess[str]:
    """`otel-gym show DIR`, its output redirected by a shell; the exit code is the command's."""
    script = f'"$@" {redirected}; exit ${{PIPESTATUS[0]}}'
    command = ["bash", "-c", script, "bash", *PROGRAM, "show", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
)
@pytest.mark.parametrize(
    "arguments", [["show"], ["show", "7-2"], ["doctor", "--all"], ["sampling"]]
)
def test_any_locale(directory: Path, arguments: list[str], environment: dict[str, str]) -> None:
    """What a locale has no character for costs looks, never the answer."""
    command, *more = arguments
    done = otel_gym(command, directory, *more, **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"7-2" in done.stdout


def test_bars_in_ascii(directory: Path) -> None:
    """Without block characters a waterfall has bars of the same length in ASCII."""
    plain = otel_gym("show", directory, "7-2", PYTHONIOENCODING="ascii").stdout.decode("ascii")
    full = otel_gym("show", directory, "7-2", PYTHONIOENCODING="utf-8").stdout.decode()
    assert "#" in plain and plain == full.replace("█", "#").replace("░", ":")


def test_json_is_utf8_in_any_locale(tmp_path: Path) -> None:
    """Machine-readable output does not follow the locale, and a path that is no UTF-8 stays readable."""
    named = tmp_path / "café"
    CaptureStore(named).record("7-2", record(1))
    done = otel_gym("show", named, "--json", PYTHONIOENCODING="latin-1")
    assert orjson.loads(done.stdout)["directory"] == str(named)
    odd = tmp_path / os.fsdecode(b"\xff")
    CaptureStore(odd).record("7-2", record(1))
    done = otel_gym("show", odd, "--json")
    assert done.returncode == 0 and rb"\udcff" in done.stdout


def on_terminal(columns: int, *arguments: str) -> str:
    """The command's output on a terminal of that width, without its colours."""
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen:
        with os.fdopen(slave, "wb", buffering=0) as terminal:
            environment = {"PATH": os.environ["PATH"], "COLUMNS": str(columns), "NO_COLOR": "1"}
            environment["TERM"] = "dumb"
            subprocess.run(
                [*PROGRAM, *arguments], stdout=terminal, env=environment, timeout=60, check=True
            )
        shown = b""
        while b"\x04" not in shown:
            try:
                piece = screen.read(65536)
            except OSError:  # Linux says so at the end.
                break
            if not piece:
                break
            shown += piece
    return shown.decode()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_figures_stay_whole_in_a_narrow_terminal(directory: Path, columns: int) -> None:
    """No figure of a table is cut: bars give way, and where that is not enough lines are longer than the terminal."""
    waterfall = on_terminal(columns, "show", str(directory), "7-2")
    assert "…" not in waterfall and "500" in waterfall and "+2.00s" in waterfall
    assert "stop" in waterfall and "responses" not in waterfall
    listed = on_terminal(columns, "show", str(directory))
    assert "…" not in listed and "duration ms" in listed
    if columns >= 80:
        assert max(len(line) for line in waterfall.splitlines()) <= columns


def test_a_full_disk_is_no_success(directory: Path) -> None:
    """Output that could not be written is one line on stderr and exit code 2."""
    done = through_shell(directory, "> /dev/full")
    assert done.returncode == 2
    assert done.stderr == "otel-gym: output: No space left on device\n"


@pytest.mark.parametrize("redirected", [">&-", "2>&-", "< /dev/null > /dev/null"])
def test_closed_streams(directory: Path, redirected: str) -> None:
    """A stream that is closed is no error."""
    done = through_shell(directory, redirected)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("option", ["--json", "--help"])
def test_a_reader_that_goes_away_is_no_answer(directory: Path, option: str) -> None:
    """A pipe that nobody reads any more ends the command quietly, with SIGPIPE's code, which no check takes for bad news."""
    done = through_shell(directory, f"{option} | (exec <&-; sleep 3)")
    assert (done.returncode, done.stderr) == (141, "")


def test_a_table_whose_reader_goes_away(directory: Path) -> None:
    """The same for what is printed as a table."""
    done = through_shell(directory, "| (exec <&-; sleep 3)")
    assert (done.returncode, done.stderr) == (141, "")
