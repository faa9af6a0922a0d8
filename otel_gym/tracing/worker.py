"""The exporting thread's work: turns what is due into a batch of encoded spans, and gets it across."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_gym.correlation.run import Run
from otel_gym.counters import count
from otel_gym.errors import StoreError
from otel_gym.tracing.backlog import Backlog
from otel_gym.tracing.batch import Batch, Source
from otel_gym.tracing.cursors import Cursors
from otel_gym.tracing.delivery import Delivery, parked_entry
from otel_gym.tracing.encode import SpanEncoder, encode_span
from otel_gym.tracing.endpoint import OtlpEndpoint
from otel_gym.tracing.files import (
    fingerprint_of,
    open_capture,
    read_lines,
    record_file_name,
    rollout_of,
)
from otel_gym.tracing.fingerprints import KNOWN_FILES, Fingerprints
from otel_gym.tracing.growth import Growth
from otel_gym.tracing.options import SpanOptions
from otel_gym.tracing.rollout import SUFFIX
from otel_gym.tracing.rollout_files import RolloutFiles, digest_of
from otel_gym.tracing.scan import Gap, Packs, capture_sizes, gaps_left
from otel_gym.tracing.sender import Sender, open_sender
from otel_gym.tracing.spans import RecordPlace, rollout_span, span_from_record

if TYPE_CHECKING:
    from otel_gym.tracing.span_data import SpanData

_logger = logging.getLogger(__name__)

_YIELD_EVERY_SPANS: Final = 4
"""Spans made in a row before the interpreter lock is given away: an event loop in this process then waits a fraction of a millisecond, not the
interpreter's switch interval."""
_UNREADABLE_S: Final = 0.5
"""Pause after a file that could not be read."""


class Worker:
    """Used by one thread."""

    def __init__(
        self,
        directory: Path,
        run: Run,
        options: SpanOptions,
        endpoint: OtlpEndpoint,
        backlog: Backlog,
        *,
        batch_max_spans: int,
        batch_max_bytes: int,
        follow: bool,
        on_span: Callable[[SpanData, Mapping[str, Any]], None] | None,
        sender: Callable[[], Sender] | None,
        pause: Callable[[float], bool],
    ) -> None:
        self._directory = directory
        self._run = run
        self._options = options
        self._backlog = backlog
        self._follow = follow
        self._on_span = on_span
        encoder = SpanEncoder(run, options)
        self._cursors = Cursors(directory, endpoint.url)
        self._delivery = Delivery(
            sender or (lambda: open_sender(endpoint)),
            encoder,
            accepted=self._on_accepted,
            parked=self._on_parked,
            pause=pause,
        )
        self.batch = Batch(batch_max_spans, batch_max_bytes - encoder.overhead_bytes)
        self._pause = pause
        self._last_cause = ""
        self.exported = 0
        self._rollouts = RolloutFiles(directory)
        self._sizes: dict[str, int] = {}
        self._packs = Packs()
        # A follower knows each file's end anyway; without its fingerprint it would take a file that was begun anew for the old one.
        self._fingerprints = Fingerprints(directory, None if follow else KNOWN_FILES)
        self._growth = Growth(directory, self._fingerprints, self._packs)

    @property
    def batch_opened_at(self) -> float | None:
        """Monotonic seconds at which the batch got its first span; null where it is empty."""
        return self.batch.opened_at if self.batch else None

    def snapshot(self) -> None:
        """Notes how far the files have grown; what is appended later is offered by whoever appends it."""
        self._sizes = capture_sizes(self._directory, self._packs)

    def load(self) -> None:
        """Finds what the cursor says is left over, as of the snapshot."""
        found = self._cursors.load()
        self._rollouts.load(found)
        gaps = gaps_left(
            self._directory,
            self._sizes,
            found,
            is_own=self._follow,
            now=time.monotonic(),
            note=self._fingerprints.note,
        )
        self._scan_rollouts(at_once=True)
        # Nothing fails from here on, so that a load that is tried again adds nothing twice.
        self._backlog.add_gaps(gaps)
        if self._follow:
            # All up to the snapshot is either done or a gap now.
            self._growth.begin(self._sizes)
        self._sizes = {}

    def scan(self, *, at_once: bool = False) -> None:
        """Looks for rollout records, `at_once` in any case, and for appended records when following."""
        self._scan_rollouts(at_once=at_once)
        if self._follow:
            self._backlog.add_gaps(self._growth.look(time.monotonic()))

    def fill(self) -> None:
        """Fills the batch: rollouts first, which are few, then fresh records, then what has to be read back from files."""
        while not self.batch.is_full() and (due := self._backlog.take_rollout()) is not None:
            self._add_rollout(*due)
        made = 0
        while not self.batch.is_full() and (written := self._backlog.first()) is not None:
            rollout_id, start = written.rollout_id, written.offset_bytes
            end = start + written.length_bytes
            source = Source(
                record_file_name(rollout_id),
                self._fingerprints.of(written),
                start,
                end,
                str(written.record.get("model_call_id")),
            )
            if not self._add(written.record, rollout_id, start, source, True):
                return
            self._backlog.drop_first()
            made += 1
            if made % _YIELD_EVERY_SPANS == 0:
                time.sleep(0)
        while not self.batch.is_full() and (gap := self._backlog.first_gap()) is not None:
            try:
                self._backlog.gap_reached(gap, self._read_gap(gap))
            except (StoreError, OSError) as error:
                # This file must wait, and must not keep the others waiting.
                self._backlog.put_off(gap)
                count("export.failures")
                self._warn(str(error))
                self._pause(_UNREADABLE_S)
                return

    def send(self) -> None:
        """Gets the batch across; keeps it where that was given up for now, and lets others go first where it may be to blame."""
        if self._delivery.deliver(self.batch) == "unclear":
            self._put_back()
        self._cursors.save()

    def close(self) -> None:
        """Writes the cursor and gives up the connection."""
        self._cursors.save()
        self._delivery.close()

    def _add(
        self,
        record: Mapping[str, Any],
        rollout_id: str,
        offset: int,
        source: Source,
        is_own: bool,
    ) -> bool:
        """Adds the span of a record to the batch; false where it did not fit."""
        place = RecordPlace(rollout_id, source.file_name, offset)
        try:
            span = span_from_record(record, place, self._run, self._options)
            encoded = encode_span(span)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one record, the others go on
            self._park(source, f"cannot become a span: {error!r}")
            return True
        if not self.batch.fits(encoded):
            return False
        if is_own:
            self._tell(span, record)
        self.batch.add(encoded, source)
        return True

    def _warn(self, cause: str) -> None:
        if cause != self._last_cause:
            self._last_cause = cause
            _logger.warning("export: %s; will be tried again", cause)

    def _tell(self, span: SpanData, record: Mapping[str, Any]) -> None:
        """Metrics of a span; what goes wrong there is counted and does not concern the span."""
        if self._on_span is None:
            return
        try:
            self._on_span(span, record)
        except Exception:  # noqa: BLE001 - see above
            count("export.failures")

    def _park(self, source: Source, reason: str) -> None:
        """Puts aside what can never be exported."""
        self._on_parked(source, reason, True)
        count("export.parked")

    def _on_parked(self, source: Source, reason: str, is_final: bool) -> None:
        """Notes a span that is put aside; the cursor moves over it only where that is final."""
        self._cursors.park(parked_entry(source, reason, is_final))
        if is_final:
            self._done(source)

    def _put_back(self) -> None:
        """Makes the spans of the batch places in files again, which are read when all others had their turn."""
        since = self.batch.opened_at
        for source in self.batch.sources:
            rollout_id = rollout_of(source.file_name)
            if rollout_id is not None:
                self._backlog.put_back(rollout_id, source.start, source.end, since)
            else:
                self._rollouts.forget(source.identity)
                self._backlog.add_rollouts([source.identity], is_own=False)
        self.batch.clear()

    def _add_rollout(self, rollout_id: str, is_own: bool) -> None:
        read = self._rollouts.read(rollout_id)
        if read is None:
            return
        record, data = read
        mark = digest_of(data)
        if self._rollouts.is_done(rollout_id, mark):
            return
        try:
            span = rollout_span(record, self._run, self._options)
            encoded = encode_span(span)
        except Exception as error:  # noqa: BLE001 - as for calls
            name = rollout_id + SUFFIX
            self._park(
                Source(name, mark, 0, len(data), rollout_id), f"cannot become a span: {error!r}"
            )
            return
        if not self.batch.fits(encoded):
            self._backlog.add_rollouts([rollout_id], is_own=is_own)
            return
        self._rollouts.done(rollout_id, mark)
        if is_own or self._follow:
            self._tell(span, record)
        name = str(span.attributes["otel_gym.record.file"])
        self.batch.add(encoded, Source(name, mark, 0, len(data), rollout_id))

    def _read_gap(self, gap: Gap) -> int:
        """Adds the records of a gap to the batch; gives the position up to which that is done."""
        rollout_id = gap.rollout_id
        name = record_file_name(rollout_id)
        file = open_capture(self._directory, rollout_id)
        if file is None:
            return gap.end
        mark = fingerprint_of(file) or ""
        if file.seekable():
            file.seek(0)
        else:  # a packed file, which nobody replaces
            file.close()
            file = open_capture(self._directory, rollout_id)
            if file is None:
                return gap.end
        known = self._fingerprints.known(rollout_id)
        self._fingerprints.note(rollout_id, mark)
        position = gap.start if known is None or known == mark else 0
        made = 0
        with file:
            for line in read_lines(file, position, gap.end):
                end = line.offset_bytes + line.length_bytes
                call_id = "" if line.record is None else str(line.record.get("model_call_id"))
                source = Source(name, mark, position, end, call_id)
                if line.record is None:
                    self._park(source, "is no JSON object")
                elif not self._add(line.record, rollout_id, line.offset_bytes, source, gap.is_own):
                    return position
                position = end
                made += 1
                if made % _YIELD_EVERY_SPANS == 0:
                    time.sleep(0)
                if self.batch.is_full():
                    return position
        if self._follow:
            self._growth.stopped(gap, position)
        return gap.end

    def _scan_rollouts(self, *, at_once: bool) -> None:
        self._backlog.add_rollouts(self._rollouts.changed(at_once=at_once), is_own=False)

    def _on_accepted(self, sources: list[Source]) -> None:
        """Notes the ranges in the cursor, neighbours as one."""
        self.exported += len(sources)
        merged: dict[tuple[str, str], Source] = {}
        for source in sources:
            key = (source.file_name, source.fingerprint)
            before = merged.get(key)
            if before is not None and before.end == source.start:
                merged[key] = before._replace(end=source.end)
                continue
            if before is not None:
                self._done(before)
            merged[key] = source
        for source in merged.values():
            self._done(source)

    def _done(self, source: Source) -> None:
        """Moves the cursor over a record, unless nobody knows in which file it stood: then it is sent again at a restart."""
        if source.fingerprint:
            self._cursors.done(*source[:4])
