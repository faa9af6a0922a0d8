"""`otel-gym export-atif`: rollouts as trajectories of Harbor's interchange format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import click

from otel_gym.cli.options import FILE, json_option
from otel_gym.cli.output import print_json, whole_file
from otel_gym.correlation.rollout_id import rollout_id_from_run_body
from otel_gym.errors import InvalidRolloutId, UsageProblem
from otel_gym.replay.atif import trajectory_of
from otel_gym.replay.errors import CaptureError, StrictExportError
from otel_gym.replay.json_values import dump_json, load_json


@click.command()
@click.argument("rollouts", metavar="ROLLOUTS", type=FILE)
@click.argument("out", metavar="OUT", type=FILE)
@click.option("--strict", is_flag=True, help="Refuse every trajectory that has a gap; exit code 1.")
@json_option
@click.pass_context
def command(context: click.Context, rollouts: str, out: str, strict: bool, as_json: bool) -> None:
    """Write the rows of a rollouts file as ATIF trajectories.

    ROLLOUTS is a JSON Lines file whose rows have the agent's Responses answer. OUT is one JSON Lines file if it ends in .jsonl, else a directory with a JSON file for each rollout.
    """
    gaps: list[tuple[str, str]] = []
    written = 0
    refused: list[str] = []
    with ExitStack() as files:
        writer = _Writer(Path(out), files)
        for where, row in _rows(Path(rollouts)):
            if not isinstance(row.get("response"), dict):
                raise UsageProblem(
                    f"{where}: response.output: want a list of items; a trajectory is made from the Responses answer that an agent returns"
                )
            name = writer.unused_name(_rollout_id(where, row))
            try:
                trajectory = trajectory_of(row, name)
                text = dump_json(trajectory.value)
            except (CaptureError, ValueError) as error:
                raise UsageProblem(f"{where}: {error}") from None
            gaps += [(name, code) for code in trajectory.gaps]
            if strict and trajectory.gaps:
                refused.append(name)
                continue
            writer.write(name, text)
            written += 1
    if as_json:
        listed = [{"trajectory": name, "code": code} for name, code in sorted(gaps)]
        print_json({"out": out, "written": written, "refused": refused, "gaps": listed})
    else:
        noun = "trajectory" if written == 1 else "trajectories"
        click.echo(f"{written} {noun} written to {out}")
    if refused:
        click.echo(f"otel-gym: {StrictExportError(gaps)}", err=True)
    context.exit(1 if refused else 0)


class _Writer:
    """Where trajectories go: one file for all, or one for each."""

    def __init__(self, out: Path, files: ExitStack) -> None:
        self._names: set[str] = set()
        self._directory = out
        self._file: BinaryIO | None = None
        if out.suffix == ".jsonl":
            self._file = files.enter_context(whole_file(out))
            return
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageProblem(f"{out}: cannot be written: {error.strerror}") from None

    def unused_name(self, rollout_id: str) -> str:
        """The rollout's id, with a number where the file has several rows of it."""
        name, number = rollout_id, 1
        while name in self._names:
            number += 1
            name = f"{rollout_id}.{number}"
        self._names.add(name)
        return name

    def write(self, name: str, text: bytes) -> None:
        if self._file is not None:
            self._file.write(text + b"\n")
        else:
            (self._directory / f"{name}.json").write_bytes(text + b"\n")


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                try:
                    row = load_json(line)
                except ValueError as error:
                    raise UsageProblem(f"{where}: not JSON: {error}") from None
                if not isinstance(row, dict):
                    raise UsageProblem(f"{where}: want a rollout's result object")
                yield where, row
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read: {error.strerror}") from None


def _rollout_id(where: str, row: dict[str, Any]) -> str:
    try:
        found = rollout_id_from_run_body(row)
    except InvalidRolloutId as error:
        raise UsageProblem(f"{where}: {error}") from None
    return found if found is not None else f"line-{where.rpartition(' ')[2]}"
