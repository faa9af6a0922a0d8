"""Measure what `docs/sizing.md` says: bytes per span on the wire, in Kafka and on Jaeger's disk, and spans per second.

The spans are this project's own: those of a directory of captures (``otel-gym demo --capture-dir DIR`` makes one), copied
under new trace, span and rollout ids until there are enough. Run ``python -m tools.backends.sizing DIR [--spans N]``.
"""

import argparse
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import zstandard
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tools.backends.processes import Backend, get_json
from tools.stack import Stack

SPANS_PER_REQUEST = 500


def _template(directory: Path) -> ExportTraceServiceRequest:
    """All spans of a directory in one request, as `otel-gym export` makes them."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "spans.jsonl")
        otel_gym = str(Path(sys.executable).with_name("otel-gym"))
        command = [otel_gym, "export", str(directory), "--out", str(out)]
        subprocess.run(command, check=True, capture_output=True)
        merged = ExportTraceServiceRequest()
        for line in out.read_text().splitlines():
            document = json.loads(line)
            _ids_to_base64(document)
            merged.resource_spans.extend(
                json_format.ParseDict(document, TracesData()).resource_spans
            )
    return merged


def _ids_to_base64(value: object) -> None:
    """OTLP's JSON writes ids as hex, protobuf's JSON as base64."""
    from base64 import b64encode

    if isinstance(value, dict):
        for key, part in value.items():
            if key in ("traceId", "spanId", "parentSpanId"):
                value[key] = b64encode(bytes.fromhex(part)).decode()
            else:
                _ids_to_base64(part)
    elif isinstance(value, list):
        for part in value:
            _ids_to_base64(part)


def _copies(template: ExportTraceServiceRequest, spans: int) -> Iterator[tuple[int, bytes]]:
    """Requests of about `SPANS_PER_REQUEST` spans under new ids, until `spans` were made."""
    made, number = 0, 0
    while made < spans:
        request, in_request = ExportTraceServiceRequest(), 0
        while in_request < SPANS_PER_REQUEST:
            number += 1
            one = ExportTraceServiceRequest()
            one.CopyFrom(template)
            for scope in (s for r in one.resource_spans for s in r.scope_spans):
                for span in scope.spans:
                    span.trace_id = _other(span.trace_id, number)
                    span.span_id = _other(span.span_id, number)
                    if span.parent_span_id:
                        span.parent_span_id = _other(span.parent_span_id, number)
                    for attribute in span.attributes:
                        if attribute.key == "otel_gym.rollout.id":
                            attribute.value.string_value += f"-{number}"
                    in_request += 1
            request.MergeFrom(one)
        made += in_request
        yield in_request, request.SerializeToString()


def _other(identifier: bytes, number: int) -> bytes:
    return hashlib.sha256(identifier + number.to_bytes(8, "big")).digest()[: len(identifier)]


def _cpu_seconds(part: Backend) -> float:
    fields = Path(f"/proc/{part.process_id}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(part: Backend) -> float:
    status = Path(f"/proc/{part.process_id}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _size(folder: Path) -> int:
    """Bytes that the files take on the disk (Badger's files are sparse)."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def _send(message: urllib.request.Request) -> int:
    """Send a request until it is taken, as otel-gym does; how often it was refused."""
    refused = 0
    while True:
        try:
            with urllib.request.urlopen(message, timeout=60) as answer:
                assert answer.status == 200
                return refused
        except urllib.error.HTTPError as problem:
            if problem.code != 503:
                raise
            refused += 1
            time.sleep(0.5)


def main() -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description="Measure the stack with this project's spans.")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--spans", type=int, default=50_000)
    arguments = parser.parse_args()
    template = _template(arguments.directory)
    requests = list(_copies(template, arguments.spans))
    spans = sum(count for count, _ in requests)
    plain = sum(len(body) for _, body in requests)
    original = template.SerializeToString()
    originals = sum(len(s.spans) for r in template.resource_spans for s in r.scope_spans)
    found: dict[str, float] = {
        "spans": spans,
        "otlp_bytes_per_span": plain / spans,
        # Of the originals: copies of one another would compress better than real spans do.
        "gzip_bytes_per_span": len(gzip.compress(original, 6)) / originals,
        "kafka_zstd_bytes_per_span": len(zstandard.compress(original)) / originals,
        "collector_refusals": 0,
    }
    with tempfile.TemporaryDirectory() as scratch:
        stack = Stack(Path(scratch), "badger")
        stack.start()
        try:
            before = [_cpu_seconds(part) for part in stack.parts]
            started = time.perf_counter()
            for _, body in requests:
                message = urllib.request.Request(
                    f"{stack.collector.otlp_http}/v1/traces",
                    body,
                    {"content-type": "application/x-protobuf"},
                )
                found["collector_refusals"] += _send(message)
            found["collector_accepts_spans_per_s"] = spans / (time.perf_counter() - started)
            stored = 'sum(otelcol_exporter_sent_spans_total{job="jaeger"})'
            while _value(stack, stored) < spans:
                time.sleep(0.2)
            found["jaeger_stores_spans_per_s"] = spans / (time.perf_counter() - started)
            for part, cpu in zip(stack.parts, before, strict=True):
                found[f"{part.name}_cpu_us_per_span"] = (_cpu_seconds(part) - cpu) / spans * 1e6
                found[f"{part.name}_peak_memory_mib"] = _resident_mib(part)
            time.sleep(11)  # one flush of the span metrics and one scrape
            series = get_json(f"{stack.prometheus.url}/api/v1/status/tsdb")["data"]["headStats"]
            found["prometheus_series"] = series["numSeries"]
            stack.stop()
            found["badger_bytes_per_span"] = _size(stack.jaeger.folder / "badger") / spans
        finally:
            stack.kill()
    json.dump({key: round(value, 1) for key, value in found.items()}, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


def _value(stack: Stack, expression: str) -> float:
    found = stack.prometheus.query(expression)
    return float(found[0]["value"][1]) if found else 0.0


if __name__ == "__main__":
    sys.exit(main())
