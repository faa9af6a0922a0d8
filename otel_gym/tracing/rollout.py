"""The rollout record: what is known of one rollout when it ends, in `<rollout_id>.rollout.json` beside its captures.

The collector of a rollout writes it; its root span is made from it, whoever exports. It is written whole under another name and moved into place, so a
reader sees all of it or nothing.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from otel_gym.correlation.rollout_id import checked, is_valid
from otel_gym.errors import StoreError

SUFFIX: Final = ".rollout.json"
SCHEMA: Final = 1


class RolloutTotals(BaseModel):
    """Sums over the model calls of one rollout; null where nobody counted."""

    model_config = ConfigDict(frozen=True, extra="allow")

    model_calls: int | None = Field(None, ge=0, description="Model calls captured.")
    failed_model_calls: int | None = Field(None, ge=0, description="Model calls that failed.")
    tool_calls: int | None = Field(None, ge=0, description="Tool calls that the model asked for.")
    input_tokens: int | None = Field(
        None, ge=0, description="Input tokens, cached ones included; null where no call said."
    )
    output_tokens: int | None = Field(
        None, ge=0, description="Output tokens; null where no call said."
    )


class RolloutRecord(BaseModel):
    """One finished rollout. Unknown keys are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    schema_version: int = Field(
        SCHEMA, alias="schema", description="Version of this record's shape."
    )
    rollout_id: str = Field(description="Rollout id, attempt suffix included.")
    started_at: float = Field(description="When it was dispatched, Unix seconds UTC.")
    completed_at: float = Field(description="When its result came, Unix seconds UTC.")
    agent: str | None = Field(None, description="Name of the agent server that ran it.")
    model: str | None = Field(
        None, description="Model, where the agent has a single fixed one; else null."
    )
    model_ref: dict[str, str] | None = Field(
        None, description="Model server of its calls: type and name."
    )
    task_index: int | None = Field(None, ge=0, description="Index of the task.")
    rollout_index: int | None = Field(None, ge=0, description="Repeat of the task.")
    attempt_index: int | None = Field(None, ge=0, description="Attempt; 0 is the first.")
    previous_rollout_id: str | None = Field(
        None,
        description="Rollout id of the attempt before; null takes it from the id's attempt suffix.",
    )
    reward: float | None = Field(None, description="Reward given by the verifier; null without.")
    error: str | None = Field(None, description="What went wrong; null for a rollout that ended.")
    error_type: str | None = Field(
        None, description="Class of the error, few values; goes into `error.type`."
    )
    totals: RolloutTotals = Field(
        default_factory=RolloutTotals.model_construct, description="Sums over its model calls."
    )
    synthesized: bool = Field(
        False, description="True for a record made from the calls alone; never written to a file."
    )

    def to_mapping(self) -> dict[str, Any]:
        """The record as the JSON object of its file."""
        return self.model_dump(by_alias=True, mode="json")


def rollout_record_path(directory: Path, rollout_id: str) -> Path:
    """Where the record of `rollout_id` stands. Raises `InvalidRolloutId`."""
    return directory / f"{checked(rollout_id)}{SUFFIX}"


def write_rollout_record(directory: Path, record: RolloutRecord, *, mode: int = 0o600) -> Path:
    """Writes `record` durably in place of one that may be there, and gives its path. Raises `StoreError`."""
    path = rollout_record_path(directory, record.rollout_id)
    data = orjson.dumps(record.to_mapping()) + b"\n"
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".rollout-", dir=directory)
        try:
            os.fchmod(descriptor, mode)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def read_rollout_record(directory: Path, rollout_id: str) -> RolloutRecord | None:
    """The record of `rollout_id`, null where there is none. Raises `StoreError` for one that cannot be read."""
    raw = read_rollout_mapping(directory, rollout_id)
    if raw is None:
        return None
    try:
        return RolloutRecord.model_validate(raw)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in problem["loc"])
        raise StoreError(f"{directory / (rollout_id + SUFFIX)}: {key}: {problem['msg']}") from None


def read_rollout_mapping(directory: Path, rollout_id: str) -> Mapping[str, Any] | None:
    """The JSON object of the record's file, null where there is none. Raises `StoreError` for what is no object."""
    path = rollout_record_path(directory, rollout_id)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise StoreError(f"{path}: is not a rollout record")
    return {**value, "rollout_id": rollout_id}


def rollout_record_ids(directory: Path) -> list[str]:
    """The rollouts of `directory` that have a record, sorted."""
    return sorted(
        name
        for entry in os.scandir(directory)
        if entry.name.endswith(SUFFIX) and is_valid(name := entry.name[: -len(SUFFIX)])
    )
