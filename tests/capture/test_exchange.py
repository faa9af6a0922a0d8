"""One exchange: what goes out at once, what waits for the record, and what the record says of every way to end."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from otel_gym.capture.record import build_model_call_record
from otel_gym.correlation import trace_ids
from otel_gym.counters import counted
from tests.capture.asgi import EVENT_STREAM, JSON, Call, Rig, answering

CHUNK = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
FINISH = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
INBOUND = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "captures", capture_terminal_grace=0.2)
    yield rig
    rig.close()


def text_of(line: dict[str, Any]) -> str:
    return str(line["response"]["choices"][0]["message"]["content"])


async def test_a_json_answer_waits_for_its_record(rig: Rig) -> None:
    """The first part goes out before the record, the last one after it."""
    call = await Call(rig).run(rig.wrap(answering(b'{"id":', b'"x"}')))
    assert call.bodies == [b'{"id":', b'"x"}'] and call.durable_at == [0, 0, 1]
    (line,) = rig.lines()
    assert line["response"] == {"id": "x"} and line["request"] == {"model": "m"}
    assert line["error_category"] is None and line["status_code"] == 200
    assert line["completed_at"] >= line["started_at"] and line["latency_ms"] >= 0


async def test_a_known_length_is_waited_for_by_its_last_byte(rig: Rig) -> None:
    """With Content-Length the client is done at that byte, so the part that holds it waits, not an empty one after it."""
    headers = [*JSON, (b"Content-Length", b"10")]
    call = await Call(rig).run(rig.wrap(answering(b'{"id":', b'"x"', b"}", b"", headers=headers)))
    assert call.bodies == [b'{"id":', b'"x"', b"}", b""]
    assert call.durable_at == [0, 0, 0, 1, 1]


async def test_a_stream_goes_out_at_once_and_its_terminal_event_waits(rig: Rig) -> None:
    """Every event before the terminal one is forwarded before the record exists; the terminal one only after."""
    app = answering(CHUNK % b"Hi", FINISH, DONE, b"", headers=EVENT_STREAM)
    call = await Call(rig).run(rig.wrap(app))
    assert call.bodies == [CHUNK % b"Hi", FINISH, DONE, b""]
    assert call.durable_at == [0, 0, 0, 1, 1]
    (line,) = rig.lines()
    assert text_of(line) == "Hi" and line["stream"] == {"chunks": 3, "terminal": "complete"}
    assert line["response_raw"].encode() == CHUNK % b"Hi" + FINISH + DONE
    assert line["latency_ttft_ms"] is not None


async def test_a_terminal_event_cut_anywhere_waits(rig: Rig) -> None:
    """Byte by byte, the client never holds the whole terminal event before the record is durable."""
    stream = CHUNK % b"data: [DONE]" + FINISH + DONE
    app = answering(*(stream[i : i + 1] for i in range(len(stream))), headers=EVENT_STREAM)
    call = await Call(rig).run(rig.wrap(app))
    assert b"".join(call.bodies) == stream
    early = b"".join(
        m.get("body", b"") for m, n in zip(call.sent, call.durable_at, strict=True) if n == 0
    )
    assert stream.startswith(early) and b"data: [DONE]\n" not in early.removeprefix(
        CHUNK % b"data: [DONE]"
    )
    assert len(early) >= len(stream) - len(DONE)
    assert text_of(rig.lines()[0]) == "data: [DONE]"


async def test_a_compressed_stream_waits_at_its_terminal_event_too(rig: Rig) -> None:
    """An encoded stream is followed as it goes by: its terminal event waits, its bytes pass unchanged."""
    import zlib

    compressor = zlib.compressobj(wbits=31)
    parts = [
        compressor.compress(event) + compressor.flush(zlib.Z_SYNC_FLUSH)
        for event in (CHUNK % b"Hi", FINISH, DONE)
    ]
    app = answering(
        *parts, compressor.flush(), headers=[*EVENT_STREAM, (b"content-encoding", b"gzip")]
    )
    call = await Call(rig).run(rig.wrap(app))
    assert gzip.decompress(b"".join(call.bodies)) == CHUNK % b"Hi" + FINISH + DONE
    assert call.durable_at[:3] == [0, 0, 0] and call.durable_at[3] == 1
    assert text_of(rig.lines()[0]) == "Hi" and rig.lines()[0]["stream"]["terminal"] == "complete"


async def test_a_stream_that_goes_on_after_its_terminal_event_is_not_held_up(rig: Rig) -> None:
    """An application that keeps the connection open after the terminal event delays it by no more than the grace."""
    before = counted("calls.trailing_bytes")
    released = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
        for body in (FINISH, DONE):
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await released.wait()
        await send({"type": "http.response.body", "body": b": bye\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    call = Call(rig)
    serving = asyncio.create_task(call.run(rig.wrap(app)))
    async with asyncio.timeout(10):
        while DONE not in call.bodies:
            await asyncio.sleep(0.01)
    assert len(rig.lines()) == 1
    released.set()
    await serving
    assert call.bodies == [FINISH, DONE, b": bye\n\n", b""]
    assert counted("calls.trailing_bytes") == before + 1


async def test_a_client_that_leaves_after_the_terminal_event_had_a_complete_call(rig: Rig) -> None:
    """Clients close at `[DONE]` without reading on; that is neither cancelled nor truncated."""

    async def hang_up(receive: Receive) -> None:
        call.disconnect.set()
        assert (await receive())["type"] == "http.disconnect"

    call = Call(rig)
    await call.run(
        rig.wrap(
            answering(CHUNK % b"Hi", FINISH, DONE, headers=EVENT_STREAM, last=False, after=hang_up)
        )
    )
    (line,) = rig.lines()
    assert line["error_category"] is None and line["stream"]["terminal"] == "complete"


async def test_a_client_that_leaves_in_the_middle_leaves_a_cancelled_record_with_what_there_was(
    rig: Rig,
) -> None:
    """The partial answer survives, the category says who ended it."""

    async def hang_up(receive: Receive) -> None:
        call.disconnect.set()
        await receive()

    call = Call(rig)
    await call.run(
        rig.wrap(answering(CHUNK % b"Hal", headers=EVENT_STREAM, last=False, after=hang_up))
    )
    (line,) = rig.lines()
    assert (
        line["error_category"] == "cancelled"
        and text_of(line) == "Hal"
        and line["stream"]["terminal"] == "none"
    )


async def test_a_cancelled_call_is_recorded_and_stays_cancelled(rig: Rig) -> None:
    """Cancellation reaches the server as before; the record has the partial answer."""
    started = asyncio.Event()

    async def wait(receive: Receive) -> None:
        started.set()
        await asyncio.Event().wait()

    app = rig.wrap(answering(CHUNK % b"Hal", headers=EVENT_STREAM, last=False, after=wait))
    task = asyncio.create_task(Call(rig).run(app))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    rig.close()
    (line,) = rig.lines()
    assert line["error_category"] == "cancelled" and text_of(line) == "Hal"


async def test_an_exception_is_recorded_and_goes_on_its_way(rig: Rig) -> None:
    """What the application raises is raised; the partial stream and the true category are in the record."""

    class EngineTimeoutError(Exception):
        pass

    async def fail(receive: Receive) -> None:
        raise EngineTimeoutError("slow")

    with pytest.raises(EngineTimeoutError):
        await Call(rig).run(
            rig.wrap(answering(CHUNK % b"Hal", headers=EVENT_STREAM, last=False, after=fail))
        )
    (line,) = rig.lines()
    assert line["error_category"] == "timeout" and text_of(line) == "Hal"


async def test_a_stream_that_ends_without_its_terminal_event_is_truncated(rig: Rig) -> None:
    """The application returned, the stream had no terminal event: it never reads as complete."""
    call = await Call(rig).run(rig.wrap(answering(CHUNK % b"Hal", b"", headers=EVENT_STREAM)))
    (line,) = rig.lines()
    assert (
        line["error_category"] == "stream_truncated"
        and text_of(line) == "Hal"
        and call.durable_at[-1] == 1
    )


async def test_a_fault_of_capture_is_not_a_fault_of_the_call(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that raises leaves the answer whole and a counter behind."""

    async def broken(*_: Any) -> None:
        raise RuntimeError("disk on fire")

    before = counted("capture.failures")
    monkeypatch.setattr(rig.writer, "write", broken)
    call = await Call(rig).run(rig.wrap(answering(b'{"a":', b"1}")))
    assert call.bodies == [b'{"a":', b"1}"] and counted("capture.failures") == before + 1


async def test_a_body_cannot_be_sent_past_the_record(rig: Rig) -> None:
    """Server extensions that send files behind our back are not offered to the application; others are."""
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["extensions"])
        await answering(b"{}")(scope, receive, send)

    await Call(
        rig, scope={"extensions": {"http.response.pathsend": {}, "http.response.debug": {}}}
    ).run(rig.wrap(app))
    assert seen == [{"http.response.debug": {}}]


async def test_a_keep_alive_comment_is_not_the_first_chunk(rig: Rig) -> None:
    """Time to first chunk counts from the first bytes that carry something."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
        await send({"type": "http.response.body", "body": b": keep-alive\n\n", "more_body": True})
        await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": FINISH + DONE})

    await Call(rig).run(rig.wrap(app))
    assert rig.lines()[0]["latency_ttft_ms"] >= 50


async def test_a_clock_set_back_during_a_call_does_not_make_it_end_before_it_began(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stamps are the wall clock at start plus monotonic time, so completion never precedes the start."""
    import time

    start = time.time_ns()
    steps = iter([start, *(start - 3_600_000_000_000 for _ in range(100))])
    monkeypatch.setattr("otel_gym.capture.capturing.time.time_ns", lambda: next(steps))
    await Call(rig).run(rig.wrap(answering(b"{}")))
    (line,) = rig.lines()
    assert line["completed_at"] >= line["started_at"] == start / 1e9


@pytest.mark.parametrize(
    ("mode", "trace_id", "parent"),
    [
        ("link", None, None),
        ("ignore", None, None),
        ("parent", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"),
    ],
)
async def test_an_inbound_trace_is_kept_and_used_as_asked(
    tmp_path: Path, mode: Any, trace_id: str | None, parent: str | None
) -> None:
    """The caller's context stands in the record in every mode; only `parent` makes the call part of the caller's trace."""
    rig = Rig(tmp_path / "captures", trace_context=mode)
    headers = [(b"traceparent", INBOUND.encode()), (b"tracestate", b"v=1")]
    await Call(rig, headers=headers).run(rig.wrap(answering(b"{}")))
    (line,) = rig.lines()
    run_id = rig.capture.run.run_id
    assert line["trace"] == {
        "trace_id": trace_id or trace_ids.trace_id(run_id, "7-2"),
        "span_id": trace_ids.span_id(line["model_call_id"]),
        "parent_span_id": parent or trace_ids.root_span_id(run_id, "7-2"),
        "inbound": {"traceparent": INBOUND, "tracestate": "v=1"},
        "mode": mode,
    }
    rig.close()


async def test_a_caller_inside_the_rollouts_own_trace_is_the_parent(rig: Rig) -> None:
    """A traceparent of the rollout's own trace is followed whatever the mode."""
    own = trace_ids.trace_id(rig.capture.run.run_id, "7-2")
    headers = [(b"traceparent", f"00-{own}-00f067aa0ba902b7-01".encode())]
    await Call(rig, headers=headers).run(rig.wrap(answering(b"{}")))
    trace = rig.lines()[0]["trace"]
    assert (trace["trace_id"], trace["parent_span_id"]) == (own, "00f067aa0ba902b7")


async def test_a_repeated_failed_call_is_marked(rig: Rig) -> None:
    """The same bytes after a 500 are a resend of that call; the same bytes after a success are a new call."""
    await Call(rig).run(rig.wrap(answering(b"{}", status=500)))
    await Call(rig).run(rig.wrap(answering(b"{}")))
    await Call(rig).run(rig.wrap(answering(b"{}")))
    first, second, third = rig.lines()
    assert "resend" not in first or first["resend"] is None
    assert second["resend"] == {"count": 1, "of": first["model_call_id"], "reason": "same_bytes"}
    assert build_model_call_record(second, 1).resend is not None
    assert third.get("resend") is None


async def test_no_secret_is_written(rig: Rig) -> None:
    """Keys and cookies of a request appear nowhere in the capture directory."""
    headers = [
        (b"authorization", b"Bearer sk-secret"),
        (b"x-api-key", b"sk-secret"),
        (b"cookie", b"sk-secret"),
    ]
    await Call(rig, headers=headers).run(rig.wrap(answering(b"{}")))
    rig.close()
    files = [file for file in rig.store.root.rglob("*") if file.is_file()]
    assert len(files) >= 2 and not any(b"sk-secret" in file.read_bytes() for file in files)
