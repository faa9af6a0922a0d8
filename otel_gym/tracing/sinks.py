"""Where an export from files puts its spans: a backend, or a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from otel_gym.correlation.run import Run
from otel_gym.errors import ExportError
from otel_gym.tracing.batch import Batch, Source
from otel_gym.tracing.cursors import Cursors
from otel_gym.tracing.delivery import Delivery, parked_entry
from otel_gym.tracing.encode import SpanEncoder, encode_span
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.otlp_json import request_line
from otel_gym.tracing.sender import Sender, open_sender
from otel_gym.tracing.span_data import SpanData

GIVE_UP_S: Final = 60.0
"""How long a backend may be away before an export from files ends with an error."""


class SpanSink(Protocol):
    """Takes the spans of an export."""

    def add(self, span: SpanData, source: Source) -> None:
        """Takes one span. Raises `ExportError` where a backend stays away."""
        ...

    def close(self) -> int:
        """Gets the rest across and gives the number of parked spans. Raises `ExportError`."""
        ...


class EndpointSink:
    """Sends to a backend in batches."""

    def __init__(
        self,
        directory: Path,
        run: Run,
        options: SpanOptions,
        endpoint: OtlpEndpoint,
        *,
        batch_max_spans: int = 512,
        batch_max_bytes: int = 3 * 1024 * 1024,
        give_up_s: float = GIVE_UP_S,
        sender: Callable[[], Sender] | None = None,
    ) -> None:
        encoder = SpanEncoder(run, options)
        cursors = Cursors(directory, endpoint.url)
        self._parked = 0

        def parked(source: Source, reason: str, is_final: bool) -> None:
            self._parked += 1
            cursors.park(parked_entry(source, reason, is_final))

        self._delivery = Delivery(
            sender or (lambda: open_sender(endpoint)),
            encoder,
            accepted=self._on_accepted,
            parked=parked,
            pause=self._pause,
        )
        self._url = endpoint.url
        self._batch = Batch(batch_max_spans, batch_max_bytes - encoder.overhead_bytes)
        self._give_up_s = give_up_s
        self._last_success = time.monotonic()

    def add(self, span: SpanData, source: Source) -> None:
        """See `SpanSink`."""
        encoded = encode_span(span)
        if not self._batch.fits(encoded) or self._batch.is_full():
            self._send()
        self._batch.add(encoded, source)

    def close(self) -> int:
        """See `SpanSink`."""
        try:
            if self._batch:
                self._send()
        finally:
            self._delivery.close()
        return self._parked

    def _send(self) -> None:
        self._last_success = time.monotonic()
        while (outcome := self._delivery.deliver(self._batch)) == "unclear":
            pass  # each round waits, and the last one gives up
        if outcome != "delivered":
            reason = self._delivery.last_reason or "does not answer"
            raise ExportError(
                f"the backend stayed away for {self._give_up_s:g} s: {reason}; what it has accepted stays, run this again"
            )

    def _on_accepted(self, sources: list[Source]) -> None:
        self._last_success = time.monotonic()

    def _pause(self, seconds: float) -> bool:
        left = self._last_success + self._give_up_s - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(seconds, left))
        return True


class FileSink:
    """Writes OTLP JSON lines to a file, which is replaced when it is whole."""

    _SPANS_A_LINE: Final = 512

    def __init__(self, path: Path, run: Run, options: SpanOptions) -> None:
        self._path = path
        self._temporary = path.with_name(path.name + ".part")
        self._run = run
        self._options = options
        self._spans: list[SpanData] = []
        try:
            self._file = self._temporary.open("wb")
        except OSError as error:
            raise self._problem(error) from error

    def add(self, span: SpanData, source: Source) -> None:
        """See `SpanSink`."""
        self._spans.append(span)
        if len(self._spans) >= self._SPANS_A_LINE:
            self._write()

    def close(self) -> int:
        """See `SpanSink`."""
        if self._spans:
            self._write()
        try:
            self._file.close()
            self._temporary.replace(self._path)
        except OSError as error:
            raise self._problem(error) from error
        return 0

    def _write(self) -> None:
        try:
            self._file.write(request_line(self._spans, self._run, self._options))
        except OSError as error:
            raise self._problem(error) from error
        self._spans.clear()

    def _problem(self, error: OSError) -> ExportError:
        return ExportError(f"{self._path}: cannot be written: {error.strerror}")
