"""Speak HTTP as the server's protocol: show the relay the client's connection, and hold every client to its limits.

ASGI sends a piece of a body by awaiting a coroutine, in a task that must be woken first. For a stream's events the
relay writes to the transport itself, in the moment in which they arrive from the engine; head and end of the response
go the ordinary way.

A head's size is counted while its bytes arrive, before anything is made of them. Each part of a request has its time.
What is wrong is answered here where no request has come of it yet; the connection is then closed, after a moment in
which the client can read the answer.

Every response names its request in `x-request-id`, and so does every line that is logged while it is answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, Literal, cast

import httptools
from starlette.types import ASGIApp, Scope
from uvicorn.config import Config
from uvicorn.server import ServerState

from supervisor.core.requests.identity import given_id, naming
from supervisor.core.routes import api_of
from supervisor.errors import HeadersTooLarge, InvalidRequest, RequestTimeout, SupervisorError
from supervisor.proxy.connections import Connections, Place, management_only, too_many_connections
from supervisor.proxy.deadline import Deadline
from supervisor.proxy.exchange import Asked, Exchange, Flow
from supervisor.proxy.oldclients import OLD, for_old_clients
from supervisor.proxy.scope import scope_of, whole_response
from supervisor.system.requestid import new_id

_LINGER_S = 5.0  # how long a client may go on sending what nobody wants any more
_LINGER_BYTES = 16 << 20  # and how much
_CHUNK = 64  # bytes that parsing a chunk costs, however small it is
_SLOWEST = 1024  # bytes per second of a body
_QUEUED = 16  # requests of one connection that wait behind the one that is being answered


class _Stop(Exception):
    """The end of parsing; `_fault` says why."""


class RelayingProtocol(asyncio.Protocol):
    """The protocol of one connection: requests as they are parsed, the next one and those behind it.

    `_phase`: what comes next from the client. `quiet`: nothing of a request yet; `head`, `body`: the rest of it.
    """

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        self.app: ASGIApp = cast(ASGIApp, config.loaded_app)
        self.loop = _loop or asyncio.get_running_loop()
        self.parser: Any = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # who closes may have sent more
        self.pipeline: deque[tuple[Exchange, Scope]] = deque()
        self.cycle: Exchange | None = None  # of the newest request
        self._server = server_state
        self._state = app_state
        self._connections = connections
        self._limits = connections.limits()
        self._deadline = Deadline(self.loop, self._late)
        self._phase: Literal["quiet", "head", "body"] = "quiet"
        self._unread = 0  # bytes since the parser last gave something out
        self._head = 0  # bytes of the head and the trailers
        self._fields = 0  # how many of them
        self._received = 0  # bytes of the body since its time limit began
        self._pieces: list[bytes] = []  # of the body, parsed but not handed on: one by one would take quadratic time
        self._wanted = True  # False: whatever comes is thrown away
        self._spare = _LINGER_BYTES  # bytes that may yet be thrown away
        self._fault: SupervisorError | None = None
        self._place = Place.FULL
        self._task: asyncio.Task[None] | None = None
        self._path = ""  # of the request that is being answered
        self._running: Exchange | None = None  # the request that is being answered; others may queue
        self._unsent: float = inf  # bytes that a closing connection had yet to send when it was looked at last
        self.headers: list[tuple[bytes, bytes]] = []
        self.url = b""
        self._id = ""  # of the present request, once its head is complete

    # -- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find out whether there is a place for the connection."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.flow = Flow(self.transport)
        name = transport.get_extra_info("sockname")
        self._address = (name[0], name[1]) if isinstance(name, tuple) else None  # at which the client has arrived
        self._scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self._server.connections.add(cast(Any, self))
        self._deadline.within(self._limits.head_s)
        self._place = self._connections.enter(self)
        if self._place is Place.NONE:
            self._write(too_many_connections())
            self._close()
        elif self._place is Place.MANAGEMENT:
            self.app = management_only(self.app, self._connections.render_error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered, even where others were queued behind it."""
        self._deadline.close()
        self._connections.leave(self)
        self._server.connections.discard(cast(Any, self))
        for one in {self.cycle, self._running}:
            if one is not None:
                one.disconnect()
        self.flow.resume_writing()
        self.transport.close()
        self.parser = None

    def shutdown(self) -> None:
        """Take no further request, as the server ends."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    @property
    def held_back(self) -> bool:
        """True if we do not read what the client sends."""
        return self.flow.read_paused

    async def write(self, data: bytes) -> None:
        """Send bytes of an answer that has no frame, once the client has taken most of those before."""
        if self.flow.write_paused:
            await self.flow.drain()
        if not self.transport.is_closing():
            self.transport.write(data)

    def end(self) -> None:
        """End an answer that has no frame: close the connection once all is sent."""
        self._close()

    def drop(self) -> None:
        """Close the connection at once, for another one."""
        self.transport.abort()

    def call_off(self, spared: Callable[[str], bool]) -> None:
        """Cancel the request that is being answered, unless its path is `spared`."""
        if self._task is not None and self._at_work() and not spared(self._path):
            self._task.cancel()

    def part(self) -> socket.socket | None:
        """Let go of an idle connection: return the client's socket, for who goes on with it; None: nobody can."""
        if self._phase != "quiet" or self._at_work() or self.pipeline or self.transport.is_closing():
            return None
        found = None
        if self._scheme == "http" and not self.transport.get_write_buffer_size():
            under = self.transport.get_extra_info("socket")
            found = socket.socket(fileno=os.dup(under.fileno()))
        self.transport.close()
        return found

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        self.flow.pause_writing()
        self._connections.stalls(self)

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self.flow.resume_writing()
        self._connections.flows(self)

    # -- what arrives

    def data_received(self, data: bytes) -> None:
        """Parse the data, within the limits."""
        if not self._wanted:
            self._throw_away(len(data))
            return
        if self._phase == "quiet":
            self._phase = "head"
            if self.cycle is not None:  # the first request's time began with the connection
                self._deadline.within(self._limits.head_s)
        self._unread += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # answered like any request; what follows is another protocol
            assert self.cycle is not None  # its head is complete
            self.cycle.keep_alive = False
            self._wanted = False
        except httptools.HttpParserError:
            self._refuse(self._fault or InvalidRequest("The request is not HTTP/1.1."))
        else:
            self._hand_on()
            if self._unread > self._limits.head:
                self._refuse(self._too_large())

    def on_message_begin(self) -> None:
        """Note the beginning of a request."""
        self._phase = "head"
        self._unread = self._head = self._fields = 0
        self.url = b""
        self.headers = []
        self._expects = False
        self._id = ""

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request line."""
        self._count(len(url))
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are counted and dropped."""
        self._fields += 1
        self._count(len(name) + len(value) + 4)
        if self._phase == "head":
            name = name.lower()
            self._expects = self._expects or (name == b"expect" and value.lower() == b"100-continue")
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Have the request answered, or queue it. Too many requests end the connection."""
        if len(self.pipeline) >= _QUEUED:
            raise _Stop
        self._id = given_id(self.headers) or new_id()
        scope = self._scope()
        before, self.cycle = self.cycle, self._exchange(scope)
        if before is None or before.response_complete:
            self._start(self.cycle, scope)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, scope))
        self._connections.works(self)
        self._phase = "body"
        self._connections.owes(self)
        self._begin_body_time()

    def _scope(self) -> Scope:
        try:
            return scope_of(self.parser, self.url, self.headers, self._address, self._scheme, self._state.copy())
        except ValueError:
            raise _Stop from None

    def _exchange(self, scope: Scope) -> Exchange:
        stays = self._place is Place.FULL and scope["http_version"] != OLD and self.parser.should_keep_alive()
        expects = self._expects and scope["http_version"] != OLD  # which knows no interim answers
        asked = Asked(self._id, scope["method"], scope["path"], stays, expects)
        return Exchange(asked, self.transport, self.flow, self._server.default_headers, self._on_response)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._unread = 0
        self._pieces.append(body)

    def _hand_on(self) -> None:
        """Give the request what has come of its body: in one piece, though it may be thousands of chunks."""
        if not self._pieces:
            return
        body, count = b"".join(self._pieces), len(self._pieces)
        self._pieces.clear()
        assert self.cycle is not None  # its head is complete
        if not self.cycle.response_complete:
            self.cycle.take(body)
        self._received += len(body)
        self._connections.owes(self)
        if self.cycle.response_complete:
            self._throw_away(len(body) + count * _CHUNK)

    def on_message_complete(self) -> None:
        """Note that the request is complete; what comes next is another one."""
        self._hand_on()
        assert self.cycle is not None  # its head is complete
        if not self.cycle.response_complete:
            self.cycle.complete()
        self._phase = "quiet"
        self._unread = 0
        self._connections.owes_nothing(self)
        self._deadline.off()
        if self.cycle.response_complete:
            self._deadline.within(self._limits.idle_s)

    # -- what is answered

    def _start(self, exchange: Exchange, scope: Scope) -> None:
        self._running = exchange
        app = for_old_clients(self.app, self) if scope["http_version"] == OLD else self.app
        self._path = scope["path"]
        self._task = task = self.loop.create_task(exchange.run(app, scope))
        task.add_done_callback(self._server.tasks.discard)
        self._server.tasks.add(task)

    def _on_response(self) -> None:
        """Begin with the next request, or set the limit for what the client owes: the rest of a body, or a request."""
        self._server.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start(*self.pipeline.pop())
        if self.transport.is_closing():
            self._deadline.within(self._limits.body_s)
        elif self._phase == "body":
            self._deadline.within(_LINGER_S)
        elif self._phase == "head":
            self._deadline.within(self._limits.head_s)
        else:
            self._deadline.within(self._limits.idle_s)
        if not self._at_work():
            self._connections.waits(self)

    def _at_work(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _late(self) -> None:
        """Act on a time limit that is over."""
        answered = self.cycle is not None and self.cycle.response_complete
        if self.transport.is_closing():
            self._close()
        elif not self._wanted or (self._phase == "body" and answered):
            self.transport.abort()
        elif self._phase == "body":
            if (
                self.flow.was_paused
                or (self.cycle is not None and self.cycle.waiting_for_100_continue)
                or self._received >= _SLOWEST * self._limits.body_s
            ):
                self._begin_body_time()
            else:
                self._refuse(RequestTimeout("The request body arrived too slowly. Send it again."))
        elif self._at_work():  # the next request's time begins when this one is answered
            self._deadline.within(self._limits.head_s)
        elif self._phase == "head":
            self._refuse(RequestTimeout("The request headers did not arrive in time. Send the request again."))
        else:
            self._close()

    def _close(self) -> None:
        """Close once all is sent, or where the client does not take it."""
        unsent = self.transport.get_write_buffer_size()
        if self.transport.is_closing() and unsent >= self._unsent:
            self.transport.abort()
            return
        self._unsent = unsent
        self.transport.close()
        self._deadline.within(self._limits.body_s)

    def _begin_body_time(self) -> None:
        self._received = 0
        self.flow.was_paused = self.flow.read_paused
        self._deadline.within(self._limits.body_s)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > self._limits.head or self._fields > self._limits.fields:
            self._fault = self._too_large()
            raise _Stop

    def _too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(
            f"Request line and headers may have {self._limits.head >> 10} KiB and {self._limits.fields} fields; "
            "send less or raise server.max_header_kib or server.max_headers."
        )

    def _refuse(self, error: SupervisorError) -> None:
        """Answer something that is no request, or will not become one, and close."""
        self._wanted = False
        if self.pipeline or (self._at_work() and self._running is not self.cycle) or self._said_something():
            self.transport.abort()  # an answer here would be taken for a part of another one
            return
        if self._running is not None:
            self._running.disconnect()
        self._write(error)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._deadline.within(_LINGER_S)
        self._connections.waits(self)

    def _said_something(self) -> bool:
        running = self._running
        return running is not None and running.response_started and not running.response_complete

    def _throw_away(self, size: int) -> None:
        self._spare -= size
        if self._spare < 0:
            self.transport.abort()

    def _write(self, error: SupervisorError) -> None:
        status, body, headers = self._connections.render_error(error)
        path = self.url.partition(b"?")[0].decode("latin-1")
        name = self._id or new_id()
        body = json.dumps(api_of(path).envelope(json.loads(body), name)).encode()
        names = {key.decode(): value.decode() for key, value in naming(name, path)}
        self.transport.write(whole_response(status, body, {**headers, **names}))
