"""Take connections for TLS: count those whose handshake is under way, and answer who speaks plain HTTP.

The server's own way counts a connection once its handshake is over; until then it costs a file that nobody bounds. And
who takes the port for one of plain HTTP would see no more than that the connection is closed. So connections are
accepted here, their first byte is looked at, and the newest take the places of the oldest that have not got on.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from supervisor.core.routes import api_of
from supervisor.errors import TlsRequired
from supervisor.proxy.asgi import Responder
from supervisor.proxy.connections import RenderError
from supervisor.proxy.server import RelayingProtocol

_HANDSHAKE: Final = b"\x16"  # the first byte of TLS
_AGAIN_S: Final = 1.0  # before the next try where the system gives no connection


@dataclass(frozen=True)
class Entrance:
    """The surroundings of a listener.

    Attributes:
        context: for new connections. patience: seconds for the first byte, and for the handshake.
        most: handshakes that may be under way.
        protocol: makes that of a connection. plain: likewise, for one that does not speak TLS.
    """

    context: Callable[[], ssl.SSLContext]
    patience: Callable[[], float]
    most: int
    protocol: Callable[[], asyncio.Protocol]
    plain: Callable[[], asyncio.Protocol]


class TlsListener:
    """Accepts the connections of a socket that listens. As a server of asyncio it has `close` and `wait_closed`."""

    def __init__(self, listener: socket.socket, entrance: Entrance) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._entrance = entrance
        self._greeted: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._accepting = asyncio.ensure_future(self._accept())

    def close(self) -> None:
        """Accept no more, and let go who has not got through yet."""
        for one in (self._accepting, *self._greeted):
            one.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing is left to be done."""
        await asyncio.wait([self._accepting, *self._greeted])

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # the system is out of files, or the client has gone already
                await asyncio.sleep(_AGAIN_S)
                continue
            if len(self._greeted) >= self._entrance.most:
                next(iter(self._greeted)).cancel()
            task = asyncio.ensure_future(self._greet(connection))
            self._greeted[task] = None
            task.add_done_callback(self._greeted.pop)

    async def _greet(self, connection: socket.socket) -> None:
        """Bring one connection to its protocol, or close it."""
        loop, entrance = asyncio.get_running_loop(), self._entrance
        connection.setblocking(False)
        patience = entrance.patience()
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(patience):
                    speaks_tls = await _first_byte(loop, connection) == _HANDSHAKE
                stack.pop_all()  # it is the loop's from here on, whatever becomes of it
                if speaks_tls:
                    context = entrance.context()
                    await loop.connect_accepted_socket(
                        entrance.protocol, connection, ssl=context, ssl_handshake_timeout=patience
                    )
                else:
                    await loop.connect_accepted_socket(entrance.plain, connection)


async def _first_byte(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    """Return the first byte that a client sends, which stays to be read; nothing where it leaves. Raise OSError."""
    arrived: asyncio.Future[None] = loop.create_future()

    def note() -> None:
        if not arrived.done():
            arrived.set_result(None)

    try:
        loop.add_reader(connection, note)
    except NotImplementedError:  # on Windows
        return _HANDSHAKE
    try:
        await arrived
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)


class PlainProtocol(RelayingProtocol):
    """The protocol of a client that speaks plain HTTP where TLS is spoken: it is told so, whatever it asks."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Have every request answered by an error."""
        super().connection_made(transport)
        self.app = _tls_required(self._connections.render_error)


def _tls_required(render_error: RenderError) -> Any:
    """Return the application that tells everybody to speak TLS."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        status, body, headers = render_error(TlsRequired("This address speaks TLS: begin it with https://."))
        await Responder(send, None, api_of(scope["path"])).whole(status, body, {**headers, "connection": "close"})

    return serve
