"""What README, docs and examples tell a reader to type, and where their links lead."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from otel_gym.cli.main import command_line

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("README.md", "CONTRIBUTING.md", "examples/README.md")
PAGES = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").glob("*.md"))]
_OURS = re.compile(r"otel-gym ([a-z][a-z-]*)((?: [^`\n|#]*)?)")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")
_MAKE = re.compile(r"(?:`|^    )make ([a-z]+)", re.MULTILINE)
_PYTHON = re.compile(r"python (-m )?([\w./]+)")
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)?(?:#([^)\s]+))?\)")


def text_of(page: Path) -> str:
    """The page with continued command lines joined."""
    return page.read_text(encoding="utf-8").replace("\\\n", " ")


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """(command, the rest of its line) of every `otel-gym ...` of a page that is written as code."""
    is_fenced = False
    for line in text_of(page).split("\n"):
        if line.startswith("```"):
            is_fenced = not is_fenced
        is_code = is_fenced or line.startswith("    ")
        for span in [line] if is_code else re.findall(r"`([^`]*)`", line):
            yield from ((found[1], found[2]) for found in _OURS.finditer(span))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_exists_with_its_options(page: Path) -> None:
    """No page names a command, or an option of one, that `otel-gym` does not have."""
    context = click.Context(command_line)
    wrong = []
    for name, rest in commands(page):
        command = command_line.get_command(context, name)
        if command is None:
            wrong.append(name)
            continue
        known = {one for parameter in command.params for one in parameter.opts} | {"--help"}
        wrong += [f"{name} {option}" for option in _OPTION.findall(rest) if option not in known]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_target_and_program_exists(page: Path) -> None:
    """Each `make` target, module and script that a page runs is there."""
    text = text_of(page)
    makefile = (ROOT / "Makefile").read_text()
    targets = {target for target in _MAKE.findall(text) if f"\n{target}:" not in makefile}
    programs = {
        name
        for is_module, name in _PYTHON.findall(text)
        if (is_module and importlib.util.find_spec(name) is None)
        or (not is_module and name.endswith(".py") and not (ROOT / name).exists())
    }
    assert (targets, programs) == (set(), set())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """A link to a file finds it, and one to a heading finds that."""
    missing = []
    for path, heading in _LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / path) if path else page
        if not target.exists():
            missing.append(path)
        elif heading:
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            if heading not in slugs:
                missing.append(f"{path}#{heading}")
    assert missing == []


def test_commands_are_found_in_pages() -> None:
    """The search finds what the tests above are about: many commands, with options, on many pages."""
    found = {page: list(commands(page)) for page in PAGES}
    assert sum(map(len, found.values())) > 60 and len(found[ROOT / "README.md"]) > 8
    assert sum("--" in rest for each in found.values() for _, rest in each) > 25
