"""Write the generated parts of docs/settings.md and docs/commands.md from the code: python -m tools.reference

Each generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; everything else is written by hand. A test compares
the files with the code.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from otel_gym.cli.main import command_line
from otel_gym.settings import BridgeSettings, ModelServerSettings, Settings

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = ("settings.md", "commands.md")
_PART = re.compile(r"(<!-- generated: (?P<name>[a-z_]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated(page: str) -> str:
    """The page as it should be."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return _PART.sub(lambda part: part[1] + _PARTS[part["name"]]() + part[3], text)


def _settings(model: type[BaseModel], leave_out: tuple[str, ...] = ()) -> str:
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        if name not in leave_out:
            rows.append(
                f"| `{name}` | {_default(name, field.get_default(call_default_factory=True))} | {field.description} |"
            )
    return "\n".join(rows) + "\n"


def _default(name: str, value: Any) -> str:
    if name.endswith("_mode") and isinstance(value, int):
        return f"`{value:#05o}`".replace("0o", "0")
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


def _bridge() -> str:
    return _settings(BridgeSettings)


def _server() -> str:
    return _settings(ModelServerSettings, leave_out=("name", "type"))


def _top() -> str:
    return _settings(
        Settings,
        leave_out=(
            "otel_gym",
            "model_servers",
            "agents",
            "content_capture",
            "otlp_endpoint",
            "source",
        ),
    )


def _commands() -> str:
    parts = []
    context = click.Context(command_line, info_name="otel-gym")
    for name in command_line.list_commands(context):
        command = command_line.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=f"otel-gym {name}")
        parts.append(
            f"## {name}\n\n{' '.join((command.help or '').split())}\n\n    {command.get_usage(inner).removeprefix('Usage: ')}\n"
        )
        options = [one for one in command.params if isinstance(one, click.Option)]
        if options:
            rows = ["| option | default | meaning |", "|---|---|---|"]
            rows += [
                f"| `{_typed(one)}` | {_option_default(one)} | {' '.join((one.help or '').split())} |"
                for one in options
            ]
            parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _typed(option: click.Option) -> str:
    """The option as it is typed: its names, and what follows them."""
    value = option.metavar or ""
    if isinstance(option.type, click.Choice):
        value = "\\|".join(map(str, option.type.choices))
    elif not value and not option.is_flag:
        value = "N"
    return f"{', '.join(option.opts)} {value}".strip()


def _option_default(option: click.Option) -> str:
    if option.required:
        return "required"
    value = option.to_info_dict().get("default")
    if option.is_flag or value is None or value == () or not isinstance(value, (str, int, float)):
        return ""
    return f"`{value}`"


_PARTS = {"top": _top, "bridge": _bridge, "server": _server, "commands": _commands}


def main() -> None:
    """Write the pages anew."""
    for page in PAGES:
        (DOCS / page).write_text(generated(page), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
