"""Connections to the engine: reuse, the moment at which an idle one is closed, answers that come before the request was taken, and nothing left behind."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from otel_gym.counters import counted
from otel_gym.servers import upstream
from otel_gym.servers.engine import EngineForwarder
from otel_gym.servers.wire import Wire
from otel_gym.settings import ModelServerSettings
from tests.engines.recording import RecordingEngine, Script, json_script
from tests.engines.serving import Served
from tests.engines.wire import WireClient, call

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
PATH = "/v1/responses"


class ByHand:
    """An engine that answers each request on its connections until `close_now` or told otherwise; keeps what it took, connection by connection."""

    def __init__(self) -> None:
        self.taken: list[list[bytes]] = []
        self.sockets: list[socket.socket] = []
        self.closes_on: int | None = None
        """Number of the request, over all connections, that is read and never answered."""
        self._count = 0
        self._closing = ""
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close_now(self, *, reset: bool) -> None:
        """Closes every connection, and returns when that is done; `reset` sends RST instead of FIN."""
        self._closing = "rst" if reset else "fin"
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self.sockets.clear()
        self._closing = ""

    def end(self) -> None:
        self._listening.close()
        for one in self.sockets:
            with suppress(OSError):
                one.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        requests: list[bytes] = []
        self.taken.append(requests)
        self.sockets.append(connection)
        with suppress(OSError):
            while True:
                request = b""
                while not request.endswith(b"}"):
                    while not select.select([connection], [], [], 0.01)[0]:
                        if self._closing:
                            self._close(connection)
                            return
                    part = connection.recv(65536)
                    if not part:
                        return
                    request += part
                requests.append(request.rpartition(b"\r\n\r\n")[2])
                self._count += 1
                if self._count == self.closes_on:
                    connection.close()
                    return
                connection.sendall(ANSWER)

    def _close(self, connection: socket.socket) -> None:
        if self._closing == "rst":
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.close()


@pytest.fixture
def by_hand() -> Iterator[ByHand]:
    engine = ByHand()
    yield engine
    engine.end()


@contextmanager
def forwarding(url: str) -> Iterator[str]:
    with Served(EngineForwarder(ModelServerSettings(base_url=url))) as served:
        yield served.url


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
def test_an_idle_connection_closed_under_a_request(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch, reset: bool
) -> None:
    """An engine that closes an idle connection just before a request reaches it cannot have seen it: it is sent again on a new one, and counted."""
    begin = Wire.begin_request

    def closing(wire: Wire) -> None:
        """The connection was just found to be open; now it is closed, and the event loop does not know."""
        monkeypatch.setattr(Wire, "begin_request", begin)
        begin(wire)
        by_hand.close_now(reset=reset)

    before = counted("engine.stale_connections")
    with forwarding(by_hand.url) as url:
        assert call(url, "POST", PATH, b'{"n":1}').status == 200
        monkeypatch.setattr(Wire, "begin_request", closing)
        second = call(url, "POST", PATH, b'{"n":2}')
    assert (second.status, second.body) == (200, b"{}")
    assert by_hand.taken == [[b'{"n":1}'], [b'{"n":2}']]
    assert counted("engine.stale_connections") == before + 1


def test_a_request_that_the_engine_took_is_never_sent_twice(by_hand: ByHand) -> None:
    """An engine that takes a request from a reused connection and closes it without a word may have been at work: the caller gets 502 and decides."""
    by_hand.closes_on = 2
    before = counted("engine.stale_connections")
    with forwarding(by_hand.url) as url:
        assert call(url, "POST", PATH, b'{"n":1}').status == 200
        assert call(url, "POST", PATH, b'{"n":2}').status == 502
        assert call(url, "POST", PATH, b'{"n":3}').status == 200
    assert [one for requests in by_hand.taken for one in requests] == [
        b'{"n":1}',
        b'{"n":2}',
        b'{"n":3}',
    ]
    assert counted("engine.stale_connections") == before


def test_an_idle_connection_that_was_closed_is_not_used(by_hand: ByHand) -> None:
    """A connection whose end the event loop has seen is dropped, and the next request goes out on a new one at once."""
    with forwarding(by_hand.url) as url:
        for number in range(3):
            assert call(url, "POST", PATH, b'{"n":%d}' % number).status == 200
            _wait(lambda: len(by_hand.sockets) == 1)
            by_hand.close_now(reset=number % 2 == 1)
    assert by_hand.taken == [[b'{"n":0}'], [b'{"n":1}'], [b'{"n":2}']]


def test_connections_are_used_again_and_then_closed(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls one after another share a connection; when none comes any more, idle connections are closed without one."""
    monkeypatch.setattr(upstream, "IDLE_S", 0.3)
    with forwarding(by_hand.url) as url:
        for number in range(20):
            assert call(url, "POST", PATH, b'{"n":%d}' % number).status == 200
        assert max(len(requests) for requests in by_hand.taken) > 1
        _wait(lambda: all(_is_closed(one) for one in by_hand.sockets))


def _is_closed(one: socket.socket) -> bool:
    try:
        return one.fileno() < 0 or one.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_many_calls_leave_nothing_behind() -> None:
    """After 200 calls at once, a third of whose clients left early, no socket is open but those of an idle server."""
    with RecordingEngine() as engine, forwarding(engine.url) as url:
        held = Script(hold_before_answer=True)
        engine.answers("/v1/held", held)
        assert call(url, "POST", PATH, b"{}").status == 200
        before = len(os.listdir("/proc/self/fd"))
        clients = [
            WireClient(url).start("POST", "/v1/held" if number % 3 == 0 else PATH, b"{}")
            for number in range(200)
        ]
        _wait(lambda: len(engine.received) == 201)
        for number, client in enumerate(clients):
            if number % 3:
                assert client.read().status == 200
            client.close()
        _wait(lambda: len(os.listdir("/proc/self/fd")) <= before + 4)


def test_an_answer_before_the_request_is_taken(tmp_path: Path) -> None:
    """An engine that refuses a large request after its head and reads no more: the caller gets the refusal, whole, and nothing hangs."""
    refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\nconnection: close\r\n\r\nlarge"
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(refusal)
                done.wait(30)

        thread = threading.Thread(target=serve)
        thread.start()
        with forwarding(f"http://127.0.0.1:{listening.getsockname()[1]}") as url:
            answer = call(url, "POST", PATH, b'{"text":"' + b"x" * 30_000_000 + b'"}')
        done.set()
        thread.join()
    assert (answer.status, answer.body, answer.complete) == (413, b"large", True)


def test_expect_continue_head_and_chunked_upload(tmp_path: Path) -> None:
    """A client that waits for 100 is told to go on, and its chunked upload arrives whole and unannounced; HEAD keeps the length of a body that is not sent."""
    with RecordingEngine() as engine, forwarding(engine.url) as url:
        engine.answers(PATH, json_script({"ok": True}))
        client = WireClient(url)
        head = "POST /v1/responses HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
        client._socket.sendall(head.encode())
        assert client._socket.recv(65536).startswith(b"HTTP/1.1 100 ")
        for part in (b'{"a":', b'"' + b"y" * 100_000, b'"}'):
            client._socket.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        client._socket.sendall(b"0\r\nx-trailer: 1\r\n\r\n")
        assert client._socket.recv(65536).startswith(b"HTTP/1.1 200 ")
        client.close()
        [received] = engine.received
        assert received.json == {"a": "y" * 100_000}
        assert received.header("expect") is None
        answer = call(url, "HEAD", PATH)
        assert answer.body == b""
        assert dict(answer.headers)[b"content-length"] == b"11"


def test_a_client_that_leaves_while_it_uploads(tmp_path: Path) -> None:
    """A model call whose client goes away before its request is whole never reaches the engine; the next one is served."""
    before = counted("engine.cancelled")
    with RecordingEngine() as engine, forwarding(engine.url) as url:
        client = WireClient(url)
        client._socket.sendall(
            b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"
        )
        client.close()
        _wait(lambda: counted("engine.cancelled") > before)
        assert call(url, "POST", PATH, b"{}").status == 200
        assert len(engine.received) == 1


def test_taking_and_giving_back_look_at_no_other_connection(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many connections are idle, a call asks one of them whether it is still open."""
    asked: list[int] = []
    readable = Wire.is_readable

    def counting(wire: Wire) -> bool:
        asked.append(id(wire))
        return readable(wire)

    monkeypatch.setattr(upstream, "IDLE_S", 60.0)
    monkeypatch.setattr(Wire, "is_readable", counting)
    with forwarding(by_hand.url) as url:
        clients = [WireClient(url).start("POST", PATH, b'{"n":1}') for _ in range(100)]
        assert {client.read().status for client in clients} == {200}
        for client in clients:
            client.close()
        assert len(by_hand.taken) > 10
        asked.clear()
        for _ in range(10):
            assert call(url, "POST", PATH, b'{"n":2}').status == 200
        assert len(asked) == 10
