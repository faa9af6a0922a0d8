"""Captures as one Parquet file: one row a call, typed columns, payloads as JSON text, so that DuckDB, Spark and Ray read it.

Needs the extra `parquet`. Rows are written in groups of bounded size, whatever the directory's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import ValidationError

from otel_gym.capture.line import encode_line
from otel_gym.capture.private_files import open_file
from otel_gym.capture.record import build_model_call_record
from otel_gym.capture.source import RecordLine
from otel_gym.capture.store import CaptureStore
from otel_gym.errors import StoreError, UsageProblem

GROUP_BYTES: Final = 32 * 1024 * 1024
GROUP_ROWS: Final = 10_000

COLUMNS: Final[dict[str, str]] = {
    "rollout_id": "string",
    "model_call_id": "string",
    "call_index": "int64",
    "dialect": "string",
    "model": "string",
    "model_ref_type": "string",
    "model_ref_name": "string",
    "status_code": "int32",
    "error_category": "string",
    "finish_reason": "string",
    "response_id": "string",
    "response_status": "string",
    "client_session_id": "string",
    "trace_id": "string",
    "span_id": "string",
    "started_at": "timestamp",
    "completed_at": "timestamp",
    "latency_total_ms": "double",
    "latency_ttft_ms": "double",
    "tokens_in": "int64",
    "tokens_out": "int64",
    "tokens_reasoning": "int64",
    "tokens_total": "int64",
    "cache_hit": "bool",
    "cached_tokens": "int64",
    "cache_creation_tokens": "int64",
    "streamed": "bool",
    "stream_chunks": "int64",
    "upstream_attempted": "bool",
    "response_source": "string",
    "upstream_status_code": "int32",
    "local_response_reason": "string",
    "reasoning_content": "string",
    "tool_calls": "string",
    "request": "string",
    "response": "string",
    "request_raw": "string",
    "response_raw": "string",
    "extra": "string",
    "offset_bytes": "int64",
    "length_bytes": "int64",
    "invalid": "string",
}
"""Column types. `extra` is a JSON object of the raw record's remaining keys; `invalid` says why typed columns are null; times are UTC microseconds."""

_YEAR_10000_S: Final = 253_402_300_800
_JSON: Final = frozenset({"tool_calls", "request", "response"})
_TAKEN: Final = frozenset(
    {
        *("model_call_id", "dialect", "model_ref", "started_at", "completed_at", "latency_ms"),
        *("latency_ttft_ms", "status_code", "error_category", "request", "response"),
        *("client_session_id", "upstream_attempted", "response_source", "upstream_status_code"),
        *("local_response_reason", "request_raw", "response_raw", "rollout_id"),
    }
)


@dataclass(frozen=True, slots=True)
class ExportOutcome:
    """What was written."""

    rollouts: int
    calls: int
    damaged_lines: int
    """Lines that are no record, and have no row."""
    invalid_records: int
    """Records whose fields have wrong types: their row holds the payloads and the reason."""
    unreadable: dict[str, str]
    """Rollouts whose file cannot be read (to its end), with the reason."""


def export_parquet(store: CaptureStore, out: Path) -> ExportOutcome:
    """Write all records of the directory to `out`, which appears when it is whole, with the store's file mode.

    Raises `UsageProblem` without pyarrow or where `out` cannot be written.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageProblem(
            'export-parquet needs pyarrow; install it with: pip install "otel-gym[parquet]"'
        ) from None
    types = {
        "string": pa.large_string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "bool": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    counts = _Counts()
    try:
        temporary.unlink(missing_ok=True)  # of an export that was killed
        with (
            os.fdopen(open_file(temporary, store.file_mode), "wb") as file,
            pq.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for rows in _groups(store, counts):
                columns = {name: [row.get(name) for row in rows] for name in COLUMNS}
                writer.write_table(pa.table(columns, schema=schema))
        os.replace(temporary, out)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UsageProblem(f"{out}: cannot be written: {error.strerror or error}") from error
        raise
    return ExportOutcome(
        counts.rollouts, counts.calls, counts.damaged, counts.invalid, counts.unreadable
    )


class _Counts:
    def __init__(self) -> None:
        self.rollouts = self.calls = self.damaged = self.invalid = 0
        self.unreadable: dict[str, str] = {}


def _groups(store: CaptureStore, counts: _Counts) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for rollout_id in store.rollouts():
        counts.rollouts += 1
        index = 0
        for line in _lines(store, rollout_id, counts):
            if line.record is None:
                counts.damaged += 1
                continue
            row = row_of(rollout_id, index, line, line.record)
            index += 1
            counts.calls += 1
            counts.invalid += row["invalid"] is not None
            rows.append(row)
            size += line.length_bytes
            if size >= GROUP_BYTES or len(rows) >= GROUP_ROWS:
                yield rows
                rows, size = [], 0
    if rows:
        yield rows


def _lines(store: CaptureStore, rollout_id: str, counts: _Counts) -> Iterator[RecordLine]:
    try:
        yield from store.iter_lines(rollout_id)
    except (OSError, StoreError) as error:
        counts.unreadable[rollout_id] = str(error)


def row_of(rollout_id: str, index: int, line: RecordLine, raw: dict[str, Any]) -> dict[str, Any]:
    """The row of one record."""
    row: dict[str, Any] = {
        "rollout_id": rollout_id,
        "call_index": index,
        "offset_bytes": line.offset_bytes,
        "length_bytes": line.length_bytes,
        "extra": _text({key: value for key, value in raw.items() if key not in _TAKEN}),
        "invalid": None,
    }
    try:
        record = build_model_call_record(raw, index)
    except ValidationError as error:
        row["invalid"] = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5]
        )
        row["request"], row["response"] = _text(raw.get("request")), _text(raw.get("response"))
        name = raw.get("model_call_id")
        row["model_call_id"] = name if isinstance(name, str) else None
        return row
    for name, kind in COLUMNS.items():
        if name in row:
            continue
        value = getattr(record, name, None)
        if name in _JSON:
            row[name] = _text(value)
        elif kind == "timestamp":
            row[name] = _microseconds(value)
        elif kind in ("int32", "int64"):
            row[name] = _bounded(value, 31 if kind == "int32" else 63)
        else:
            row[name] = value
    if record.model_ref is not None:
        row["model_ref_type"] = record.model_ref.type
        row["model_ref_name"] = record.model_ref.name
    return row


def _text(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return orjson.dumps(value, default=str).decode("utf-8", "replace")
    except TypeError:  # another producer's line, nested deeper than orjson writes
        line = encode_line({"": value})
        return line.removeprefix(b'{"":').removesuffix(b"}\n").decode("utf-8", "replace")


def _microseconds(value: float | None) -> int | None:
    """UTC microseconds; null for a time that no calendar of the readers holds, such as one that was written in milliseconds."""
    return None if value is None or not 0 <= value < _YEAR_10000_S else round(value * 1e6)


def _bounded(value: int | None, bits: int) -> int | None:
    """A count that a column holds; a larger one, which no engine means, is left out."""
    return value if value is not None and -(2**bits) <= value < 2**bits else None
