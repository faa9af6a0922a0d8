"""Coverage-guided fuzzing of everything that reads bytes: `python -m tests.dialects.fuzz_streams TARGET [SECONDS]`.

Targets: sse, responses, chat, messages, completions, encoding, usage. Whatever the bytes: no exception, the same
reading however they are cut and as if each event were read by itself, the scanner and the full reading agree, no
byte is changed, no superlinear time.
"""

from __future__ import annotations

import gzip
import sys
import time
import zlib
from collections.abc import Callable
from typing import cast

import atheris
import brotli
import zstandard

with atheris.instrument_imports(include=["otel_gym"]):
    from otel_gym.capture.record import build_model_call_record, build_raw_record, encode_line
    from otel_gym.dialects import (
        DialectName,
        EncodingError,
        SSEDecoder,
        TerminalScanner,
        UsageChunkFilter,
        accumulator,
        decode_body,
        read_stream,
        reading,
        runs,
    )
    from tests.dialects.facts import facts

SEEDS = (
    b"data: [DONE]\n\n",
    b'event: error\r\ndata: {"type":"error","error":{"message":"m"}}\r\n\r\n',
    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    * 3,
    b'data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}\n\n',
    b'data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"b"}}]}}]}\n\n'
    * 3,
    b'data: {"id":"c","choices":[{"index":0,"text":"a","logprobs":{"tokens":["a"]}}]}\n\n' * 2,
    b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n',
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}\n\n',
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":{}}}\r\r',
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}\n\n'
    * 2,
    b'data: {"type":"message_stop"}\n\n',
    b'data: {"type":"response.output_item.added","output_index":0,"item":{"id":"i","type":"message","content":[]}}\n\n',
    b'data: {"type":"response.output_text.delta","output_index":0,"item_id":"i","content_index":0,"delta":"a"}\n\n'
    * 3,
    b'data: {"type":"response.completed","response":{"id":"r","status":"completed","output":[]}}\n\n',
)
LIMIT = 64 * 1024
reading._SLICE_BYTES = 1
runs._FIRST_WINDOW_BYTES = 400
"""Small, for inputs are: else a run would hardly ever be collected ahead."""


def pieces(data: bytes) -> list[bytes]:
    """The bytes cut into pieces whose sizes the bytes themselves choose."""
    cuts: list[bytes] = []
    start = 0
    while start < len(data):
        size = 1 + data[start] % 23
        cuts.append(data[start : start + size])
        start += size
    return cuts


def fuzz_sse(data: bytes) -> None:
    """Whole and cut give the same events."""
    whole, cut = SSEDecoder(), SSEDecoder()
    expected = [*whole.feed(data), *whole.finish()]
    assert [
        *(event for piece in pieces(data) for event in cut.feed(piece)),
        *cut.finish(),
    ] == expected


def one_by_one(dialect: DialectName, data: bytes) -> reading.StreamReading:
    """The reading without runs."""
    plain = accumulator(dialect)
    assert isinstance(plain, reading.EventAccumulator)
    plain._skip = 10**9
    decoder = SSEDecoder()
    for event in (*decoder.feed(data), *decoder.finish()):
        plain.feed(event)
    return plain.finish()


def fuzz_dialect(dialect: DialectName) -> Callable[[bytes], None]:
    """Reading, scanner, line and derived record of a stream."""

    def target(data: bytes) -> None:
        cut = pieces(data)
        whole = read_stream(dialect, [data])
        assert repr(read_stream(dialect, cut)) == repr(whole)
        assert repr(one_by_one(dialect, data)) == repr(whole)
        scanner = TerminalScanner(dialect)
        for piece in cut:
            scanner.feed(piece)
        assert scanner.finish() == whole.terminal
        learning, searching = TerminalScanner(dialect), TerminalScanner(dialect)
        searching._patience = 0
        for event in data.replace(b"\n\n", b"\n\n\0").split(b"\0"):
            assert learning.feed(event) == searching.feed(event)
        assert learning.finish() == searching.finish()
        raw = build_raw_record(facts(dialect, data, streamed=True, request=data))
        assert encode_line(raw).count(b"\n") == 1
        build_model_call_record(raw, 0)

    return target


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=1),
    "zstd": lambda data: zstandard.ZstdCompressor(level=1).compress(data),
}


def fuzz_encoding(data: bytes) -> None:
    """Decoded within the bound, or refused: the bytes themselves, and an encoded body that they damage."""
    for encoding, encode in ENCODERS.items():
        encoded = bytearray(encode(data[8:]))
        for position in data[:4]:
            encoded[position % len(encoded)] ^= data[0]
        for damaged in (data, bytes(encoded), bytes(encoded[: len(encoded) // 2])):
            try:
                assert len(decode_body(encoding, damaged, LIMIT)) <= LIMIT
            except EncodingError as error:
                assert len(error.partial) <= LIMIT


def fuzz_usage(data: bytes) -> None:
    """No byte is changed but for the events taken out, which are the same however the stream is cut."""
    whole, cut = UsageChunkFilter(), UsageChunkFilter()
    sent = whole.feed(data) + whole.finish()
    sent_cut = b"".join(cut.feed(piece) for piece in pieces(data)) + cut.finish()
    assert sent.replace(b"\r\n", b"\n") == sent_cut.replace(b"\r\n", b"\n")
    if not whole.dropped:
        assert sent == sent_cut == data


TARGETS: dict[str, Callable[[bytes], None]] = {
    "sse": fuzz_sse,
    "encoding": fuzz_encoding,
    "usage": fuzz_usage,
    **{
        name: fuzz_dialect(cast(DialectName, name))
        for name in ("responses", "chat", "messages", "completions")
    },
}


def linear(target: Callable[[bytes], None], data: bytes) -> None:
    """Eight times the bytes may take a few times more than eight times the time."""
    taken = []
    for times in (8, 64):
        begun = time.process_time()
        target(data * times)
        taken.append(time.process_time() - begun)
    assert taken[1] < 40 * taken[0] + 0.5, f"{len(data)} bytes x8, x64 took {taken} s"


def main() -> None:
    """Fuzz the target named on the command line; an exception ends the process with the input in a file."""
    target = TARGETS[sys.argv[1]]
    seconds = sys.argv[2] if len(sys.argv) > 2 else "600"
    inputs = 0

    def one_input(data: bytes) -> None:
        nonlocal inputs
        inputs += 1
        # Bytes alone rarely find their way into the dialects: the first byte may put seeds around them.
        if data and data[0] < 128:
            first, second = data[0] % len(SEEDS), data[0] // len(SEEDS) % len(SEEDS)
            data = SEEDS[first] + data[1:] + SEEDS[second]
        target(data)
        if inputs % 200 == 0 and 0 < len(data) <= 2048:
            linear(target, data)

    atheris.Setup(
        [sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", "-timeout=30", *sys.argv[3:]],
        one_input,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
