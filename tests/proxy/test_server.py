"""The protocol's sense of time, with a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from supervisor.api.errors import render_error
from supervisor.proxy.connections import ClientLimits, Connections
from supervisor.proxy.exchange import Exchange
from supervisor.proxy.server import RelayingProtocol

LIMITS = ClientLimits(connections=9, head=1 << 16, fields=100, head_s=20, body_s=60, idle_s=75)
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Task:
    """One that never ends."""

    def add_done_callback(self, call: Callable[[Any], None]) -> None: ...


class Clock:
    """The part of an event loop that tells the time, and makes tasks that never run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(at, call))
        return self.timers[-1]

    def call_later(self, after: float, call: Callable[[], None]) -> Timer:
        return self.call_at(self.now + after, call)

    def create_task(self, work: Coroutine[Any, Any, None], **_: object) -> Task:
        work.close()
        return Task()

    def pass_to(self, now: float) -> None:
        """Let the time pass, and everything happen that is due meanwhile."""
        while due := [one for one in self.timers if not one.cancelled and one.at <= now]:
            first = min(due, key=lambda one: one.at)
            self.timers.remove(first)
            self.now = max(self.now, first.at)
            first.call()
        self.now = now


class Wire(asyncio.Transport):
    """A client's connection, of which the test sees what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unsent = 0
        self.closed = ""

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return bool(self.closed)

    def close(self) -> None:
        self.closed = self.closed or "in peace"

    def abort(self) -> None:
        self.closed = "aborted"

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Client:
    """A connection to the server, whose clock the test has."""

    def __init__(self, connections: Connections | None = None) -> None:
        self.clock, self.wire = Clock(), Wire()
        connections = connections or Connections(lambda: LIMITS, render_error, self.clock.time)
        config = uvicorn.Config(lambda: None, interface="asgi3", lifespan="off", log_config=None, ws="none")
        self.server = RelayingProtocol(connections, config, ServerState(), {}, cast(Any, self.clock))
        self.server.connection_made(self.wire)

    def answer(self) -> None:
        """The request's answer is out."""
        running = self.server._running
        assert running is not None
        running.response_complete = True
        if not running.keep_alive:
            self.wire.close()
        running.on_response()

    @property
    def at_work(self) -> bool:
        """Whether a request is to be answered."""
        running = self.server._running
        return running is not None and not running.response_complete and not running.disconnected

    @property
    def status(self) -> int | None:
        return int(self.wire.written.split(b" ")[1]) if self.wire.written else None


def newest(server: RelayingProtocol) -> Exchange:
    """The newest request."""
    assert server.cycle is not None
    return server.cycle


PIECES = st.one_of(
    st.sampled_from([
        *(b"GET /a HTTP/1.1\r\n", b"POST /b HTTP/1.1\r\n", b"Host: a\r\n", b"\r\n", b"Content-Length: 5\r\n"),
        *(b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n", b"0\r\n", b"Connection: upgrade\r\n", b"hello"),
        *(
            b"Upgrade: websocket\r\n",
            b"Connection: close\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"Expect: 100-continue\r\n",
        ),
        *(b"CONNECT a:1 HTTP/1.1\r\n", b"GET * HTTP/1.0\r\n", b"GET http://a HTTP/1.1\r\n", b"x" * 70_000),
    ]),
    st.binary(max_size=20),
)


@given(st.lists(st.tuples(PIECES, st.booleans(), st.floats(0, 90)), max_size=12))
def test_whatever_arrives_the_connection_is_served_or_closed(said: list[tuple[bytes, bool, float]]) -> None:
    client = Client()
    for piece, answered, seconds in said:
        if client.wire.closed:
            break
        client.server.data_received(piece)
        if answered and client.at_work and not client.wire.closed:
            client.answer()
        client.clock.pass_to(client.clock.now + seconds)
    while client.at_work and not client.wire.closed:
        client.answer()
    client.clock.pass_to(client.clock.now + 1000)
    assert client.wire.closed
    client.server.connection_lost(None)


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_body_that_goes_on_at_a_kilobyte_a_second_is_waited_for(client: Client) -> None:
    client.server.data_received(HEAD + b"\r\n")
    for minute in range(1, 10):
        client.server.data_received(b" " * 62_000)
        newest(client.server).body.clear()  # as the application does that reads it
        client.clock.pass_to(minute * 60.0)
        assert client.status is None
    client.server.data_received(b" " * 60_000)
    client.clock.pass_to(600)
    assert client.status == 408


def test_the_time_in_which_nothing_was_read_is_not_the_client_s(client: Client) -> None:
    client.server.data_received(HEAD + b"\r\n" + b" " * 70_000)  # more than is kept of what nobody reads
    for minute in range(1, 10):
        client.clock.pass_to(minute * 60.0)
    client.server.flow.resume_reading()
    client.clock.pass_to(600)
    assert client.status is None
    client.clock.pass_to(660)
    assert client.status == 408


def test_a_client_that_was_not_told_to_go_on_is_not_late(client: Client) -> None:
    client.server.data_received(HEAD + b"Expect: 100-continue\r\n\r\n")
    client.clock.pass_to(600)
    assert client.status is None
    newest(client.server).waiting_for_100_continue = False  # told
    client.clock.pass_to(720)
    assert client.status == 408


def test_a_client_of_an_old_version_is_told_nothing_before_its_answer(client: Client) -> None:
    client.server.data_received(HEAD.replace(b"/1.1", b"/1.0") + b"Expect: 100-continue\r\n\r\n")
    assert not newest(client.server).waiting_for_100_continue


def test_what_comes_behind_a_request_that_is_being_answered_has_time(client: Client) -> None:
    client.server.data_received(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea")
    client.clock.pass_to(1000)
    assert client.status is None
    client.answer()
    client.clock.pass_to(1019)
    assert client.status is None
    client.clock.pass_to(1021)
    assert client.status == 408


def test_an_answer_that_a_closing_connection_still_sends_is_waited_for(client: Client) -> None:
    client.server.data_received(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.wire.unsent = 1000
    client.wire.close()
    client.answer()
    for minute in range(1, 9):
        client.wire.unsent -= 100
        client.clock.pass_to(minute * 60.0)
        assert client.wire.closed == "in peace"
    client.clock.pass_to(600)
    assert client.wire.closed == "aborted"


def test_who_leaves_is_noticed_also_behind_a_second_request(client: Client) -> None:
    client.server.data_received(b"GET /a HTTP/1.1\r\n\r\n")
    first = newest(client.server)
    client.server.data_received(b"GET /b HTTP/1.1\r\n\r\n")
    assert newest(client.server) is not first
    client.server.connection_lost(None)
    assert first.disconnected
    assert first.message_event.is_set()


def test_requests_without_end_behind_one_that_is_being_answered_end_the_connection(client: Client) -> None:
    request = b"GET /a HTTP/1.1\r\n\r\n"
    for _ in range(20):  # a queue that moves
        client.server.data_received(request * 2)
        assert client.wire.closed != "aborted"
        client.answer()
        client.answer()
    client.server.data_received(request * 17)
    assert len(client.server.pipeline) == 16
    client.server.data_received(request * 5000)
    assert str(client.wire.closed) == "aborted"
    assert len(client.server.pipeline) == 16
    client.server.connection_lost(None)
    assert not client.at_work


def test_who_does_not_read_loses_his_place_to_a_newcomer() -> None:
    clock = Clock()
    connections = Connections(lambda: ClientLimits(1, 1 << 16, 100, 20, 60, 75), render_error, clock.time)
    stalled = Client(connections)
    stalled.server.data_received(b"GET /a HTTP/1.1\r\n\r\n")
    stalled.server.pause_writing()
    assert Client(connections).server.app is not stalled.server.app  # for management only
    clock.now = 31
    assert stalled.wire.closed == ""
    Client(connections)
    assert stalled.wire.closed == "aborted"


@pytest.mark.parametrize(("size", "status"), [(16_000, None), (17_000, 431)])
def test_names_and_values_of_headers_count_together(size: int, status: int | None) -> None:
    client = Client()
    client.server.data_received(b"GET /a HTTP/1.1\r\nHost: a\r\n")
    for number in range(2):
        client.server.data_received(b"x" * size + b"%d: " % number + b"y" * size + b"\r\n")
    client.server.data_received(b"\r\n")
    assert client.status == status


CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_body_in_thousands_of_chunks_is_handed_on_in_one() -> None:
    server = Client().server
    woken: list[bytes] = []
    server.data_received(CHUNKED)
    newest(server).message_event.set = lambda: woken.append(bytes(newest(server).body))  # type: ignore[method-assign]  # to be seen
    server.data_received(b"1\r\na\r\n" * 5000)
    assert woken == [b"a" * 5000]


def test_each_request_gets_its_own_body_however_they_come() -> None:
    server = Client().server
    server.data_received(CHUNKED + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n" + CHUNKED + b"1\r\nc\r\n0\r\n\r\n" + GET)
    first, (third, _), (second, _) = server._running, *server.pipeline
    assert first is not None
    assert [one.body for one in (first, second, third)] == [b"ab", b"c", b""]
    assert not any(one.more_body for one in (first, second, third))


def test_who_goes_on_in_small_chunks_is_cut_off_as_soon_as_one_in_large_ones() -> None:
    client = Client()
    client.server.data_received(CHUNKED)
    newest(client.server).response_complete = True
    for _ in range(100):
        client.server.data_received(b"1\r\na\r\n" * 5000)
    assert client.wire.closed == "aborted"
