"""What a person can get wrong: one clear line, exit code 2, nothing on stdout, nothing changed."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_gym.capture.store import CaptureStore
from otel_gym.cli.main import run
from tests.reliability.mounts import Mount

RUN = '{"schema":1,"run_id":"r","created_at":1.0,"resource":{}}'


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a good capture directory, an empty one, and files that are not what their names say."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    store = CaptureStore(tmp_path / "good")
    store.record("7-0", {"model_call_id": "a" * 32, "dialect": "chat", "request": {"model": "m"}})
    (tmp_path / "good" / "run.json").write_text(RUN)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text")
    (tmp_path / "rows.jsonl").write_text('{"torn')
    (tmp_path / "bad.yaml").write_text("a: [1\n b: }")
    return tmp_path


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


READERS = (
    "show {}",
    "show {} 7-0",
    "doctor {}",
    "sampling {}",
    "rederive {} --check",
    "trace-id {} 7-0",
    "find abc {}",
    "export {} --out spans.jsonl",
    "verify {} --jaeger http://127.0.0.1:1",
    "pack {}",
    "export-parquet {} out.parquet",
    "view {}",
)
WRONG = (
    # An empty value is most often an unset variable; it must not mean the current directory.
    "export good --out ''",
    "attach rows.jsonl --capture-dir '' --output out.jsonl",
    "attach '' --capture-dir good --output out.jsonl",
    "collect --agent http://127.0.0.1:1 --input rows.jsonl --output ''",
    "serve --engine http://127.0.0.1:1 --capture-dir ''",
    "serve --config ''",
    "demo --capture-dir ''",
    "history ''",
    # An empty address would be every address.
    "serve --engine http://127.0.0.1:1 --host '' --port 0",
    "view good --host '' --port 0",
    "serve --engine http://127.0.0.1:1 --capture-dir new --run-id '' --port 0",
    "serve --engine http://127.0.0.1:1 --capture-dir new --run-id 'a\nb' --port 0",
    "export good --out spans.jsonl --run-id ''",
    # URLs that no client could use, told before anything is done.
    "serve --engine http://127.0.0.1:99999",
    "serve --engine http://[::1",
    "serve --engine 'http://a b'",
    "serve --engine http://127.0.0.1:1 --otlp-endpoint ftp://x --capture-dir new",
    "demo --otlp-endpoint ftp://x --capture-dir new",
    "collect --agent http://127.0.0.1:99999 --input rows.jsonl --output out.jsonl",
    "export good --endpoint http://127.0.0.1:99999",
    "export good --endpoint ''",
    "verify good --jaeger nowhere",
    "verify good --jaeger http://127.0.0.1:99999",
    "trace-id good 7-0 --ui nowhere",
    "view good --jaeger-ui nowhere",
    # Numbers that are none, and figures that cannot be meant.
    "pack good --idle nan",
    "pack good --idle -1",
    "export good --out spans.jsonl --since nan",
    "export good --out spans.jsonl --since inf",
    "collect --agent http://127.0.0.1:1 --input rows.jsonl --output out.jsonl --timeout nan",
    "sampling good --require temperature=hot",
    # A name that fits nothing must not pass for a clean answer.
    "export good --out spans.jsonl --rollout 9-9",
    "verify good --jaeger http://127.0.0.1:1 --rollout 9-9",
    "show good 9-9",
    "rederive good 9-9",
    "export empty --out spans.jsonl",
    "export good --out nowhere/spans.jsonl",
    "export good --out empty",
    "history nowhere",
    # No answer is no bad answer.
    "verify good --jaeger http://127.0.0.1:1",
    "export good --config bad.yaml --out spans.jsonl",
    "export-atif rows.jsonl out.jsonl",
    "attach nowhere --capture-dir good --output out.jsonl",
    "attach empty --capture-dir good --output out.jsonl",
    # A server that is to capture and cannot does not start.
    "serve --engine http://127.0.0.1:1 --capture-dir file --port 0",
    "serve --engine http://127.0.0.1:1 --capture-dir file/below --port 0",
    "serve --engine http://127.0.0.1:1 --capture-dir good --run-id other --port 0",
)


def words(line: str) -> list[str]:
    """A command line as a shell splits it."""
    return shlex.split(line)


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_is_one_line_and_changes_nothing(
    room: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr, nothing on stdout, exit code 2, and every file is as before, with none beside them."""
    before = contents(room)
    assert run(words(line)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("otel-gym: ") and printed.err.count("\n") == 1, printed.err
    assert contents(room) == before


@pytest.mark.parametrize("line", READERS)
@pytest.mark.parametrize("directory", ["nowhere", "file", "''", "/proc/self/mem", "x" * 300])
def test_a_directory_that_is_none(
    room: Path, line: str, directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command that reads a capture directory refuses what is none in the same way."""
    before = contents(room)
    assert run(words(line.format(directory))) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert contents(room) == before


def test_existing_output_survives_a_command_that_fails(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trajectory file of an earlier run is replaced by a whole one only."""
    (room / "out.jsonl").write_text("earlier\n")
    assert run(["export-atif", "rows.jsonl", "out.jsonl"]) == 2
    assert (room / "out.jsonl").read_text() == "earlier\n"
    assert sorted(os.listdir(room)) == [
        "bad.yaml",
        "empty",
        "file",
        "good",
        "out.jsonl",
        "rows.jsonl",
    ]


def test_a_complaint_cannot_steer_the_terminal(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was typed is shown with its control characters escaped, and cut where it is endless."""
    assert run(["find", "\x1b[31m" + "x" * 100_000, "good"]) == 1
    assert run(["show", "\x1b[31mnowhere"]) == 2
    assert run(["show", "good", "--call", "\x1b[31m" + "x" * 100_000]) == 2
    printed = capsys.readouterr().err
    assert "\x1b" not in printed and len(printed) < 5000


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "foreign"])
def test_one_bad_file_holds_up_no_other(
    room: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands over a whole directory show the rest; where a file could not be read they say so with exit code 1."""
    bad: Any = room / "good" / "8-0.capture.jsonl"
    if kind == "link":
        bad.symlink_to(room / "file")
    elif kind == "pipe":
        os.mkfifo(bad)
    elif kind == "directory":
        bad.mkdir()
    else:
        bad.write_text('{"model_call_id":7,"started_at":"soon","latency_ms":[]}\n')
    code = 0 if kind == "foreign" else 1
    for line in ("show good", "sampling good", "rederive good --check"):
        assert run(words(line)) == code, line
        printed = capsys.readouterr()
        assert printed.out, line
        assert ("8-0" in printed.err) == (kind != "foreign"), line
    assert run(["show", "good", "7-0"]) == 0


def test_ids_and_directories_of_find_may_change_places(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every other command names the directory first; find takes both orders."""
    for arguments in (["a" * 32, "good"], ["good", "a" * 32]):
        assert run(["find", *arguments]) == 0
        assert "7-0.capture.jsonl" in capsys.readouterr().out


def test_a_directory_above_says_where_the_captures_are(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` of the parent directory names the directories below it that hold captures."""
    assert run(["show", "."]) == 0
    assert "below it, in good" in capsys.readouterr().out


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A capture directory of a real file system that was mounted read-only after it was made."""
    store = CaptureStore(tmp_path / "made")
    store.record("7-0", {"model_call_id": "a" * 32, "dialect": "chat"})
    (store.root / "run.json").write_text(RUN)
    point = Mount(tmp_path / "mount")
    try:
        point.tmpfs("size=1m")
        copied = Path(shutil.copytree(store.root, point.path / "run"))
        point.remount("ro")
        yield copied
    finally:
        point.close()


@pytest.mark.parametrize(
    "line",
    [
        "serve --engine http://127.0.0.1:1 --port 0 --capture-dir {}",
        "serve --engine http://127.0.0.1:1 --port 0 --capture-dir {}/new",
        "export {} --out {}/spans.jsonl",
        "export-parquet {} {}/calls.parquet",
        "export-atif rows.jsonl {}/out.jsonl",
        "attach rows.jsonl --capture-dir {} --output {}/out.jsonl",
        "demo --capture-dir {}/demo",
    ],
)
def test_what_cannot_be_written_is_told_at_once(
    room: Path, read_only: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A read-only file system is one line and exit code 2, not a server that captures nothing."""
    assert run(words(line.replace("{}", str(read_only)))) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and str(read_only) in printed.err


@pytest.mark.parametrize(
    "line", ["show {}", "show {} 7-0", "doctor {}", "sampling {}", "rederive {} --check"]
)
def test_what_is_only_read_can_be_read_only(
    read_only: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Looking needs no right to write."""
    assert run(words(line.replace("{}", str(read_only)))) == 0
    assert capsys.readouterr().err == ""
