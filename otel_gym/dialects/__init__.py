"""What the bytes of one model API mean: event streams, four dialects, token counts. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from otel_gym.dialects.chat import ChatAccumulator
from otel_gym.dialects.completions import CompletionsAccumulator
from otel_gym.dialects.encoding import EncodingError, decode_body
from otel_gym.dialects.messages import MessagesAccumulator
from otel_gym.dialects.names import DIALECTS, DialectName, Terminal
from otel_gym.dialects.reading import Accumulator, StreamReading, feed_all
from otel_gym.dialects.responses import ResponsesAccumulator
from otel_gym.dialects.scanner import TerminalScanner
from otel_gym.dialects.sse import SSEDecoder, SSEvent, is_event_stream, looks_like_event_stream
from otel_gym.dialects.stream_usage import UsageChunkFilter, add_stream_usage
from otel_gym.dialects.usage import TokenUsage, read_usage

__all__ = [
    "DIALECTS",
    "Accumulator",
    "DialectName",
    "EncodingError",
    "SSEDecoder",
    "SSEvent",
    "StreamReading",
    "Terminal",
    "TerminalScanner",
    "TokenUsage",
    "UsageChunkFilter",
    "accumulator",
    "add_stream_usage",
    "decode_body",
    "is_event_stream",
    "looks_like_event_stream",
    "read_stream",
    "read_usage",
]

_ACCUMULATORS: dict[DialectName, type[Accumulator]] = {
    "responses": ResponsesAccumulator,
    "chat": ChatAccumulator,
    "messages": MessagesAccumulator,
    "completions": CompletionsAccumulator,
}


def accumulator(dialect: DialectName) -> Accumulator:
    """A fresh accumulator of the dialect."""
    return _ACCUMULATORS[dialect]()


def read_stream(dialect: DialectName, chunks: Iterable[bytes]) -> StreamReading:
    """Put a whole stream together; `chunks` are its (decoded) bytes, cut anywhere."""
    return feed_all(accumulator(dialect), chunks)
