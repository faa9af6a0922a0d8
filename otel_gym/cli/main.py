"""`otel-gym`: finds its commands by file name and turns every error of a person's input into one line and exit code 2."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from importlib.metadata import version
from typing import Final

import click

from otel_gym import cli
from otel_gym.errors import ExportError, OtelGymError
from otel_gym.reports.terminal import printable

_NOT_COMMANDS: Final = frozenset({"main", "options", "output", "selection"})
_READER_GONE: Final = 141
"""What a shell says of a program that SIGPIPE ended; 1 would be taken for an answer."""
_LONGEST_COMPLAINT: Final = 2000
"""In characters; an argument can be a megabyte long."""


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
    for stream in (sys.stdout, sys.stderr):
        # A character that the locale cannot show costs its own looks, not the command.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    sys.exit(_flushed(run(sys.argv[1:])))


def run(arguments: list[str]) -> int:
    """Run one command line; the exit code: 0 well, 1 the answer is bad news, 2 no answer, 130 interrupted, 141 nobody reads on."""
    streams = sys.stdout, sys.stderr
    try:
        result = command_line.main(args=arguments, prog_name="otel-gym", standalone_mode=False)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.Abort:
        return _complain("interrupted", 130)
    except click.UsageError as problem:
        asked = problem.ctx.command_path if problem.ctx is not None else "otel-gym"
        message = problem.format_message().rstrip(".")
        return _complain(f"{message}; see: {asked} --help", 2)
    except click.ClickException as problem:
        return _complain(problem.format_message(), 2)
    except ExportError as error:
        return _complain(str(error), 1)
    except OtelGymError as error:
        return _complain(str(error), 2)
    except OSError as error:
        return _complain(f"{error.filename or 'output'}: {error.strerror or error}", 2)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except SystemExit as ending:
        # So rich and click end at a broken pipe; click puts a wrapper in place of the streams.
        is_replaced = sys.stdout is not streams[0]
        sys.stdout, sys.stderr = streams
        if is_replaced or isinstance(ending.__context__, BrokenPipeError):
            return _READER_GONE
        raise
    return result if isinstance(result, int) else 0


def _flushed(code: int) -> int:
    """The exit code once stdout has taken everything: a full disk must not pass for success."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        # What is left would be tried again at exit, with a message of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return _READER_GONE
        return _complain(f"output: {error.strerror}", 2)
    return code


def _complain(message: str, code: int) -> int:
    click.echo(f"otel-gym: {printable(' '.join(message.split()), _LONGEST_COMPLAINT)}", err=True)
    return code
