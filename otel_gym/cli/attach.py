"""`otel-gym attach`: put what was captured into result rows that somebody else collected, NeMo Gym among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from otel_gym.capture.store import CaptureStore
from otel_gym.cli.options import DIRECTORY, FILE, json_option
from otel_gym.cli.output import console, existing_directory, print_json, whole_file
from otel_gym.errors import UsageProblem
from otel_gym.rollouts.attach import ATTACHMENT_KEY, attach_model_calls
from otel_gym.rollouts.ending import record_of_row
from otel_gym.rollouts.tasks import read_rows
from otel_gym.servers.answers import encode_json
from otel_gym.tracing.rollout import rollout_record_path, write_rollout_record


@click.command()
@click.argument("rows", metavar="ROWS", type=FILE)
@click.option(
    "--capture-dir",
    type=DIRECTORY,
    required=True,
    metavar="DIR",
    help="Directory that holds the .capture.jsonl files.",
)
@click.option(
    "--output",
    type=FILE,
    required=True,
    metavar="FILE",
    help="Where the rows go with their attachments.",
)
@click.option(
    "--rollout-records",
    is_flag=True,
    help="Also write a rollout record for each row that has none, for its root span.",
)
@json_option
def command(rows: str, capture_dir: str, output: str, rollout_records: bool, as_json: bool) -> int:
    """Attach captured calls to rows collected elsewhere.

    Copies each row of ROWS (a JSON Lines file) with the model calls captured for its rollout as ng_model_call_capture. Exit code 1 where a row could not be used or has gaps.
    """
    store = CaptureStore(existing_directory(capture_dir))
    target = Path(output)
    if target.exists():
        raise UsageProblem(f"{output}: exists; name another output")
    attached = gaps = unnamed = damaged = records = 0
    with whole_file(target) as file:
        for number, row in read_rows(Path(rows)):
            if not isinstance(row, dict):
                damaged += 1
                click.echo(f"otel-gym: {rows}: row {number}: is no JSON object; left out", err=True)
                continue
            if attach_model_calls(row, store):
                attached += 1
                gaps += "gaps" in row[ATTACHMENT_KEY]
                records += rollout_records and _keep_record(store, row)
            else:
                unnamed += 1
                click.echo(f"otel-gym: {rows}: row {number}: names no rollout; copied", err=True)
            file.write(encode_json(row) + b"\n")
    summary = {"attached": attached, "with_gaps": gaps, "unnamed": unnamed, "damaged": damaged}
    summary["rollout_records"] = records
    if as_json:
        print_json({**summary, "output": str(target)})
    else:
        console().print(
            f"rows      {attached} attached, {gaps} of them with gaps, {unnamed} name no rollout, {damaged} damaged",
            markup=False,
        )
        console().print(f"output    {target}", markup=False, soft_wrap=True)
    return 1 if gaps or unnamed or damaged else 0


def _keep_record(store: CaptureStore, row: dict[str, Any]) -> bool:
    """Write the rollout record of an attached row where there is none yet; whether it was written."""
    record = record_of_row(row, row[ATTACHMENT_KEY])
    if record is None or rollout_record_path(store.root, record.rollout_id).exists():
        return False
    write_rollout_record(store.root, record, mode=store.file_mode)
    return True
