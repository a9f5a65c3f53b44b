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
from collections.abc import Mapping
from http import HTTPStatus
from math import inf
from typing import Any, Literal, cast

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from supervisor.core.requests.identity import given_id, naming
from supervisor.core.routes import api_of
from supervisor.errors import HeadersTooLarge, InvalidRequest, RequestTimeout, SupervisorError
from supervisor.proxy.connections import Connections, Place, management_only, too_many_connections
from supervisor.proxy.deadline import Deadline
from supervisor.proxy.oldclients import for_old_clients
from supervisor.system.requestid import answering, new_id

_EXTENSION = "supervisor.relay"
_TRANSPORT = "transport"
_ID = "id"

_LINGER_S = 5.0  # how long a client may go on sending what nobody wants any more
_LINGER_BYTES = 16 << 20  # and how much
_CHUNK = 64  # bytes that parsing a chunk costs, however small it is
_SLOWEST = 1024  # bytes per second of a body
_QUEUED = 16  # requests of one connection that wait behind the one that is being answered


class _Stop(Exception):
    """The end of parsing; `_fault` says why."""


class RelayingProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits, and with the transport in every request's scope.

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
        super().__init__(config, server_state, app_state, _loop)
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
        self._running: RequestResponseCycle | None = None  # the request that is being answered; others may queue
        self._unsent: float = inf  # bytes that a closing connection had yet to send when it was looked at last
        self.url = b""
        self._id = ""  # of the present request, once its head is complete

    # -- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Find out whether there is a place for the connection."""
        super().connection_made(transport)
        self.flow = self._flow = _Flow(transport)
        self.timeout_keep_alive = self._limits.idle_s  # type: ignore[assignment]  # uvicorn takes whole seconds; its timer any
        self._deadline.within(self._limits.head_s)
        self._place = self._connections.enter(self)
        if self._place is Place.NONE:
            self._write(too_many_connections())
            self._close()
        elif self._place is Place.MANAGEMENT:
            self.app = management_only(self.app, self._connections.render_error)
        self.app = for_old_clients(self.app, self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered, even where others were queued behind it."""
        self._deadline.close()
        self._connections.leave(self)
        super().connection_lost(exc)
        self._disconnect(self._running)

    @property
    def held_back(self) -> bool:
        """True if we do not read what the client sends."""
        return self._flow.read_paused

    async def write(self, data: bytes) -> None:
        """Send bytes of an answer that has no frame, once the client has taken most of those before."""
        if self._flow.write_paused:
            await self._flow.drain()
        if not self.transport.is_closing():
            self.transport.write(data)

    def end(self) -> None:
        """End an answer that has no frame: close the connection once all is sent."""
        self._close()

    def drop(self) -> None:
        """Close the connection at once, for another one."""
        self.transport.abort()

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        super().pause_writing()
        self._connections.stalls(self)

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self._connections.flows(self)

    # -- what arrives

    def data_received(self, data: bytes) -> None:
        """Parse the data, within the limits."""
        self._unset_keepalive_if_required()
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
        super().on_message_begin()
        self._phase = "head"
        self._unread = self._head = self._fields = 0
        self._id = ""

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are counted and dropped."""
        self._fields += 1
        self._count(len(name) + len(value) + 4)
        if self._phase == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Make the request's task, which runs later. Too many requests end the connection."""
        if len(self.pipeline) >= _QUEUED:
            raise _Stop
        self._id = given_id(self.headers) or new_id()
        self.scope["extensions"] = {_EXTENSION: {_TRANSPORT: self.transport, _ID: self._id}}
        super().on_headers_complete()
        if self._place is not Place.FULL:
            self.cycle.keep_alive = False
        self._connections.works(self)
        self._phase = "body"
        self._connections.owes(self)
        self._begin_body_time()

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
        super().on_body(body)
        self._received += len(body)
        self._connections.owes(self)
        if self.cycle.response_complete:
            self._throw_away(len(body) + count * _CHUNK)

    def on_message_complete(self) -> None:
        """Note that the request is complete; what comes next is another one."""
        self._hand_on()
        super().on_message_complete()
        self._phase = "quiet"
        self._unread = 0
        self._connections.owes_nothing(self)
        self._deadline.off()
        if self.cycle.response_complete:
            self._deadline.within(self._limits.idle_s)

    # -- what is answered

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        name: str = cast(Scope, cycle.scope)["extensions"][_EXTENSION][_ID]
        cycle.default_headers = [*cycle.default_headers, *naming(name, cycle.scope["path"])]
        super()._start_asgi_task(cycle, cast(Any, _named(app, name)))

    def on_response_complete(self) -> None:
        """Set the limit for what the client owes next: the rest of a body, or another request."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._deadline.within(self._limits.body_s)
        elif self._phase == "body":
            self._deadline.within(_LINGER_S)
        elif self._phase == "head":
            self._deadline.within(self._limits.head_s)
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
                self._flow.was_paused
                or self.cycle.waiting_for_100_continue
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

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, on which no further request came in time."""
        if not self.transport.is_closing():
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
        self._flow.was_paused = self._flow.read_paused
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
        self._disconnect(self._running)
        self._write(error)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._deadline.within(_LINGER_S)
        self._connections.waits(self)

    def _said_something(self) -> bool:
        running = self._running
        return running is not None and running.response_started and not running.response_complete

    def _disconnect(self, cycle: RequestResponseCycle | None) -> None:
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

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
        self.transport.write(_response(status, body, {**headers, **names}))


class _Flow(FlowControl):
    """uvicorn's flow control, which remembers that a client was kept from sending."""

    was_paused = False

    def pause_reading(self) -> None:
        """Stop reading what the client sends."""
        super().pause_reading()
        self.was_paused = True


def _named(app: ASGIApp, request_id: str) -> ASGIApp:
    """Return `app` for one request, in whose task the id is known, to the server's own log as well."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        request = answering(request_id)
        try:
            await app(scope, receive, send)
        finally:
            asyncio.get_running_loop().call_soon(request.over)  # the server first logs what was raised

    return serve


def _response(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    further = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close", **headers}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in further.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def transport_of(scope: Scope) -> asyncio.Transport | None:
    """Return the client's connection; None under another server."""
    found: asyncio.Transport | None = scope.get("extensions", {}).get(_EXTENSION, {}).get(_TRANSPORT)
    return found
