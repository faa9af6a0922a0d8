"""`otel-gym`: finds its commands by file name and turns every error of a person's input into one line and exit code 2."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from importlib.metadata import version
from typing import Final

import click

from otel_gym import cli
from otel_gym.errors import OtelGymError, UsageProblem

_NOT_COMMANDS: Final = frozenset({"main", "output"})


class Commands(click.Group):
    """Commands are modules of this package with an object `command`; one is imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = (module.name for module in pkgutil.iter_modules(cli.__path__))
        return sorted(name.replace("_", "-") for name in names if name not in _NOT_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"otel_gym.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        command.name = cmd_name
        return command


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(version("otel-gym"), prog_name="otel-gym")
def command_line() -> None:
    """Durable records of model calls, one span per record, one trace per rollout."""


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; the exit code: 0 well, 1 the answer is bad news, 2 unusable input, 130 interrupted."""
    try:
        result = command_line.main(args=arguments, prog_name="otel-gym", standalone_mode=False)
    except UsageProblem as problem:
        return _complain(str(problem), 2)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.Abort:
        return _complain("interrupted", 130)
    except click.ClickException as problem:
        return _complain(problem.format_message(), 2)
    except OtelGymError as error:
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    return result if isinstance(result, int) else 0


def _complain(message: str, code: int) -> int:
    click.echo(f"otel-gym: {' '.join(message.split())}", err=True)
    return code
