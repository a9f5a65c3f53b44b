"""Limit the clients' connections: how many there may be, who leaves for a new one, what each of them may take.

A file descriptor is needed for every connection, and for all else that the daemon does. So connections are limited to
a part of them. Where that is used up, a newcomer takes the place of the connection that has waited longest for its own
client: for a request, for somebody who reads, or for the rest of a body. Where all are at work, a few more are let in
for /health and /api/v1, so that a person can still see and change what is going on; everything else is told to come
back.
"""

from __future__ import annotations

import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor.core.routes import api_of
from supervisor.errors import SupervisorError, TooManyConnections
from supervisor.proxy.asgi import Responder

_log = structlog.get_logger()

_MANAGEMENT = 32  # connections beyond the limit, for management
_STALLED_S = 30.0  # a client that has not read for so long may lose its place
_SILENT_S = 5.0  # so may one that owes the rest of a body and has sent nothing of it for so long
_WARN_AGAIN_S = 3600.0

RenderError = Callable[[SupervisorError], tuple[int, bytes, Mapping[str, str]]]


@dataclass(frozen=True)
class ClientLimits:
    """The limits of one client.

    connections: of all clients together. head: bytes of the request line and the headers, trailers included. fields:
    how many headers. head_s: seconds for the head of a request. body_s: seconds in which a body must make progress.
    idle_s: seconds without a request after which a connection is closed.
    """

    connections: int
    head: int
    fields: int
    head_s: float
    body_s: float
    idle_s: float


class Place(Enum):
    """The place that a new connection gets."""

    FULL = auto()  # it is served
    MANAGEMENT = auto()  # of its requests only those of management are
    NONE = auto()  # it is told to come back


class Connection(Protocol):
    """The facts of a connection that have to be known."""

    @property
    def held_back(self) -> bool:
        """True if we do not read what it sends."""

    def drop(self) -> None:
        """Close it at once."""

    def part(self) -> socket.socket | None:
        """Let go of it while it is idle: return the client's socket, for who goes on with it.

        None where there is nothing to go on with: it has begun a request, or cannot be passed on and is closed.
        """


class Connections:
    """All connections of the server. `limits`: those in force now; a connection keeps those that it began with."""

    def __init__(
        self, limits: Callable[[], ClientLimits], render_error: RenderError, clock: Callable[[], float]
    ) -> None:
        self.limits = limits
        self.render_error = render_error
        self._clock = clock
        self._served: set[Connection] = set()
        self._waiting: OrderedDict[Connection, None] = OrderedDict()
        self._stalled: OrderedDict[Connection, float] = OrderedDict()
        self._owing: OrderedDict[Connection, float] = OrderedDict()
        self._management: set[Connection] = set()
        self._management_waiting: OrderedDict[Connection, None] = OrderedDict()
        self._warned_at: float | None = None
        self._pass_on: Callable[[Connection], None] | None = None

    def enter(self, new: Connection) -> Place:
        """Find a place for a new connection; another one may be dropped for it."""
        if len(self._served) < self.limits().connections:
            return self._serve(new)
        self._warn()
        if self._drop_oldest(self._waiting) or self._drop_stalled() or self._drop_silent():
            return self._serve(new)
        if len(self._management) < _MANAGEMENT or self._drop_oldest(self._management_waiting):
            self._management.add(new)
            self._management_waiting[new] = None
            return Place.MANAGEMENT
        return Place.NONE

    def leave(self, old: Connection) -> None:
        """Take out a connection that is closed."""
        self._served.discard(old)
        self._management.discard(old)
        for waiting in (self._waiting, self._stalled, self._owing, self._management_waiting):
            waiting.pop(old, None)

    def waits(self, one: Connection) -> None:
        """Note that a connection waits for its client's next request."""
        if one in self._served:
            self._waiting[one] = None
        if self._pass_on is not None:
            self._pass_on(one)

    def leave_to(self, pass_on: Callable[[Connection], None]) -> None:
        """From now on give `pass_on` every connection that waits for its client, those that wait already included."""
        self._pass_on = pass_on
        for one in (*self._waiting, *self._management_waiting):
            pass_on(one)

    def works(self, one: Connection) -> None:
        """Note that a connection has a request, whose body may be yet to come."""
        self._waiting.pop(one, None)

    def stalls(self, one: Connection) -> None:
        """Note that a connection's client reads more slowly than it is written to."""
        if one in self._served:
            self._stalled[one] = self._clock()

    def flows(self, one: Connection) -> None:
        """Note that the client reads again."""
        self._stalled.pop(one, None)

    def owes(self, one: Connection) -> None:
        """Note that a connection's client has begun a body, or sent a piece of it, and more is to come."""
        if one in self._served:
            self._owing[one] = self._clock()
            self._owing.move_to_end(one)

    def owes_nothing(self, one: Connection) -> None:
        """Note that the request is complete.

        A connection for management may lose its place until then, as its body is small.
        """
        self._owing.pop(one, None)
        self._management_waiting.pop(one, None)

    def _serve(self, new: Connection) -> Place:
        self._served.add(new)
        self._waiting[new] = None
        return Place.FULL

    def _drop_oldest(self, waiting: OrderedDict[Connection, None]) -> bool:
        if not waiting:
            return False
        self._drop(next(iter(waiting)))
        return True

    def _drop_stalled(self) -> bool:
        if not self._stalled:
            return False
        oldest, since = next(iter(self._stalled.items()))
        if self._clock() - since < _STALLED_S:
            return False
        self._drop(oldest)
        return True

    def _drop_silent(self) -> bool:
        now = self._clock()
        for one, since in self._owing.items():
            if now - since < _SILENT_S:
                return False
            if not one.held_back:
                self._drop(one)
                return True
        return False

    def _drop(self, one: Connection) -> None:
        self.leave(one)
        one.drop()

    def _warn(self) -> None:
        now = self._clock()
        if self._warned_at is None or now - self._warned_at >= _WARN_AGAIN_S:
            self._warned_at = now
            _log.warning(
                "connections_full",
                limit=self.limits().connections,
                effect="idle connections are closed for new ones; where none is idle, new ones get 503",
                help="see server.max_connections; the limit on open files bounds it",
            )


def management_only(app: ASGIApp, render_error: RenderError) -> ASGIApp:
    """Return `app` for a connection that has a place for management alone."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path in {"/health", "/ready"} or path.startswith("/api/v1/"):
            await app(scope, receive, send)
        else:
            await Responder(send, None, api_of(path)).whole(*render_error(too_many_connections()))

    return serve


def too_many_connections() -> TooManyConnections:
    """Return the error for a client without a place."""
    return TooManyConnections("The server has as many connections as it can serve. Try again in a moment.")
