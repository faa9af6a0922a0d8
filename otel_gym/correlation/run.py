"""`run.json`: which run a capture directory is, and the resource that all its spans share."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from otel_gym.errors import StoreError

RUN_FILE: Final = "run.json"


class Run(BaseModel):
    """The identity of one capture directory. Made once, by the first producer; everybody else reads it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = Field(1, description="Version of this file's shape.", alias="schema")
    run_id: str = Field(min_length=1, description="Name of the run; part of every trace id.")
    created_at: float = Field(description="When the directory became a run, Unix seconds UTC.")
    resource: dict[str, str] = Field(
        default_factory=dict,
        description="Resource attributes of every span of the run, so that live and later exports are equal.",
    )


def read_run(directory: Path) -> Run | None:
    """The run of `directory`, or null where nobody has made one. Raises `StoreError` for a damaged file."""
    path = directory / RUN_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return Run.model_validate(orjson.loads(data))
    except (orjson.JSONDecodeError, ValidationError) as error:
        raise StoreError(f"{path}: is not a run file; move it away and start again") from error


def open_run(
    directory: Path,
    *,
    run_id: str | None = None,
    resource: Mapping[str, str] | None = None,
    file_mode: int = 0o600,
) -> Run:
    """The run of `directory`, made atomically if there is none yet.

    `run_id`, `resource` and `file_mode` only count for the one who makes it; of several producers starting at once, one wins and all use its file. Raises
    `StoreError` where the file can neither be read nor made, or names another run than a given `run_id`.
    """
    found = read_run(directory)
    if found is None:
        run = Run(
            schema=1,
            run_id=run_id or uuid.uuid4().hex,
            created_at=time.time(),
            resource=dict(resource) if resource is not None else default_resource(),
        )
        _create(directory, run, file_mode)
        found = read_run(directory)
        if found is None:
            raise StoreError(f"{directory / RUN_FILE}: vanished while it was being made")
    if run_id is not None and found.run_id != run_id:
        raise StoreError(f"{directory / RUN_FILE}: names run {found.run_id!r}, not {run_id!r}")
    return found


def default_resource(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Resource attributes from OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES over our own defaults.

    `host.name` is the run's, not each producer's: backends compare it to decide whether two clocks may differ. Format of the variable: W3C baggage
    octets, https://opentelemetry.io/docs/specs/otel/resource/sdk/.
    """
    from importlib.metadata import version
    from urllib.parse import unquote

    resource = {
        "service.name": "otel-gym",
        "service.version": version("otel-gym"),
        "host.name": socket.gethostname(),
    }
    for pair in environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        key, separator, value = pair.partition("=")
        if separator and key.strip():
            resource[key.strip()] = unquote(value.strip())
    if name := environment.get("OTEL_SERVICE_NAME"):
        resource["service.name"] = name
    return resource


def _create(directory: Path, run: Run, file_mode: int) -> None:
    """Write the file under a name of its own and link it into place: whoever links first has made the run."""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".run-", dir=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(
                    orjson.dumps(run.model_dump(by_alias=True), option=orjson.OPT_INDENT_2) + b"\n"
                )
                file.flush()
                if file_mode != 0o600:  # what mkstemp gives
                    os.fchmod(file.fileno(), file_mode)
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(temporary, directory / RUN_FILE)
        finally:
            os.unlink(temporary)
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise StoreError(f"{directory / RUN_FILE}: cannot be made: {error.strerror}") from error
