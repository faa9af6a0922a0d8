"""The command line as a whole: found commands, one-line errors, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from otel_gym.cli.main import command_line, run


def test_every_command_says_what_it_does() -> None:
    """Each command file is found, and its help begins with a sentence."""
    import click

    context = click.Context(command_line)
    names = command_line.list_commands(context)
    assert {"demo", "serve", "show"} <= set(names)
    for name in names:
        command = command_line.get_command(context, name)
        assert command is not None and command.help, name
        assert all(
            parameter.help for parameter in command.params if isinstance(parameter, click.Option)
        ), name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-command"], "no-such-command"),
        (["show"], "DIRECTORY"),
        (["show", "/no/such/directory"], "no such directory"),
        (["show", __file__], "not a directory"),
        (["demo", "--rollouts", "0"], "rollouts"),
        (["demo", "--capture-dir", "/proc/nothing/here"], "capture-dir"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unusable input gives one line on stderr that names it, nothing on stdout, and code 2."""
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert (
        printed.err.startswith("otel-gym: ")
        and printed.err.count("\n") == 1
        and words in printed.err
    )


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """Piping into something that stops reading ends quietly."""
    code = "from otel_gym.cli.main import main; main()"
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -c {code!r} --help | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.stderr == "" and done.returncode in (0, 1)
