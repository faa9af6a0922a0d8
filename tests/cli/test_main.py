"""The command line as a whole: found commands, one-line errors, exit codes."""

from __future__ import annotations

import click
import pytest

from otel_gym.cli.main import command_line, run


def test_every_command_says_what_it_does() -> None:
    """Each command file is found, and its help begins with a sentence."""
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
        (["show"], "DIR"),
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


def test_commands_are_listed_whole() -> None:
    """What a command does fits beside its name in a terminal of 80 columns, and no two say the same."""
    context = click.Context(command_line, max_content_width=80, terminal_width=80)
    commands = [
        command_line.get_command(context, one) for one in command_line.list_commands(context)
    ]
    listed = [command.get_short_help_str(56) for command in commands if command is not None]
    assert not [text for text in listed if text.endswith("...")]
    assert len(set(listed)) == len(listed) == len(commands)


def test_one_option_has_one_wording() -> None:
    """An option that several commands have is described alike in all of them, metavar included, where it means the same."""
    context = click.Context(command_line)
    seen: dict[str, set[tuple[str | None, str | None]]] = {}
    for name in command_line.list_commands(context):
        command = command_line.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                said = seen.setdefault(parameter.opts[0], set())
                said.add((parameter.metavar, parameter.help))
    for option in ("--json", "--rollout", "--run-id", "--otlp-endpoint"):
        assert len(seen[option]) == 1, option
    for option, said in seen.items():
        assert len({metavar for metavar, _ in said}) == 1, option
        assert all(str(help_text).endswith((".", "]")) for _, help_text in said), option


def test_a_path_is_always_called_by_one_name() -> None:
    """The capture directory of every command that reads one is DIR."""
    context = click.Context(command_line)
    for name in command_line.list_commands(context):
        command = command_line.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Argument) and parameter.name == "directory":
                assert parameter.metavar == "DIR", name
