"""HTTP to one other node, over mutual TLS; connections are kept, as a handshake costs more than a request.

It is shaped as the client of engines: an answer's pieces go to a sink at the moment in which they arrive, no task is
woken for them, and a slow reader holds the other node back. Leaving an answer before its end closes the connection,
which cancels the work there.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, cast

from supervisor.cluster.kept import peer_of
from supervisor.cluster.peerresponse import PeerResponse, PeerUnreachable
from supervisor.core.cluster.identity import Peer
from supervisor.engines.client import Payload

_CONNECT_S: Final = 5.0
_IDLE_S: Final = 15.0
_MOST_IDLE: Final = 32
_PIECE: Final = 1 << 18
_CUT_OFF_MS: Final = 10_000


class PeerClient:
    """The client of one node. Raises PeerUnreachable where it says so, also where another one answers.

    Args:
        who: the node.
    """

    def __init__(self, host: str, port: int, context: ssl.SSLContext, who: Peer) -> None:
        self._who = who
        self._host = host
        self._port = port
        self._context = context
        self._idle: deque[PeerConnection] = deque()
        self._open: set[PeerConnection] = set()

    def send(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: Payload, *, safe: bool = False
    ) -> PeerRequest:
        """Return a request; `async with` sends it, and gives the answer once status and headers are there.

        target: path and query, percent-encoded. safe: it may be sent twice. Raises ValueError for a bad header.
        """
        pieces = (body,) if isinstance(body, bytes) else tuple(body)
        size = sum(map(len, pieces))
        lines = [f"{method} {target} HTTP/1.1", "host: node", *(f"{name}: {value}" for name, value in headers)]
        if size or method not in {"GET", "HEAD"}:
            lines.append(f"content-length: {size}")
        if any(bad in line for line in lines for bad in "\r\n\0"):
            raise ValueError("a header with a control character")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return PeerRequest(self, head, pieces, safe=safe, bare=method == "HEAD")

    async def connection(self, *, fresh: bool) -> tuple[PeerConnection, bool]:
        """Return a connection, and whether it was used before. fresh: it must not have been."""
        while self._idle and not fresh:
            found = self._idle.pop()
            if found.rests():
                return found, True
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, made = await loop.create_connection(
                    lambda: PeerConnection(self), self._host, self._port, ssl=self._context, server_hostname="node"
                )
        except ConnectionRefusedError as error:
            raise PeerUnreachable(f"nobody listens there: {error.strerror}", sent=False, refused=True) from None
        except (OSError, TimeoutError, UnicodeError) as error:  # the last: its address is none
            raise PeerUnreachable(str(error) or "no connection in time", sent=False) from None
        if made.who() != self._who:
            made.abort()
            raise PeerUnreachable("another host answers there", sent=False)
        self._open.add(made)
        return made, False

    def rest(self, connection: PeerConnection) -> None:
        """Keep a connection for the next request."""
        if len(self._idle) >= _MOST_IDLE:
            self._idle.popleft().abort()
        self._idle.append(connection)

    def gone(self, connection: PeerConnection) -> None:
        """Forget a connection that is closed."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def close(self) -> None:
        """Close all that is open; whoever reads an answer gets PeerUnreachable."""
        for one in tuple(self._open):
            one.abort()


class PeerRequest:
    """A request that `async with` sends. bare: its answer has no body, whatever it says."""

    def __init__(
        self, client: PeerClient, head: bytes, body: Sequence[bytes | memoryview], *, safe: bool, bare: bool = False
    ) -> None:
        self._client = client
        self._head = head
        self._body = body
        self._safe = safe
        self._bare = bare
        self._connection: PeerConnection | None = None

    async def __aenter__(self) -> PeerResponse:
        fresh = False
        while True:
            connection, used = await self._client.connection(fresh=fresh)
            self._connection = connection
            answer = connection.begin(bare=self._bare)
            try:
                await connection.send(self._head, self._body)
                await answer.head()
            except PeerUnreachable:
                connection.abort()
                if used and not fresh and not answer.began and (self._safe or not connection.flushed):
                    fresh = True
                    continue
                raise
            except BaseException:
                connection.abort()
                raise
            return answer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._connection is not None  # entered
        self._connection.leave()


class PeerConnection(asyncio.Protocol):
    """One connection, which answers one request at a time.

    Attributes:
        flushed: all of the request has been given to the system.
    """

    def __init__(self, client: PeerClient) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._answer: PeerResponse | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost: str | None = None
        self._resting: asyncio.TimerHandle | None = None
        self.flushed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the system notice soon that the node was cut off."""
        self._transport = cast(asyncio.Transport, transport)
        under = transport.get_extra_info("socket")
        if under is not None:
            under.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in (("TCP_KEEPIDLE", 3), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
                if hasattr(socket, name):
                    under.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                under.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _CUT_OFF_MS)

    def data_received(self, data: bytes) -> None:
        """Give it to the answer that is being read."""
        if self._answer is None:  # nothing was asked
            self.abort()
        else:
            self._answer.feed(data)

    def eof_received(self) -> None:
        """End what is read."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who reads."""
        self._lost = str(exc) if exc is not None else "it closed the connection"
        self._writable.set()
        self._client.gone(self)
        if self._resting is not None:
            self._resting.cancel()
        if self._answer is not None:
            self._answer.broke(self._lost)

    def pause_writing(self) -> None:
        """Note that the node does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Note that it reads again."""
        self._writable.set()

    def who(self) -> Peer | None:
        """Return the node that has answered, by its certificate."""
        return None if self._transport is None else peer_of(self._transport.get_extra_info("peercert"))

    def begin(self, *, bare: bool = False) -> PeerResponse:
        """Return the answer to come. bare: it has no body, whatever it says."""
        if self._resting is not None:
            self._resting.cancel()
        self._answer = PeerResponse(self, bare=bare)
        self.flushed = False
        return self._answer

    async def send(self, head: bytes, body: Sequence[bytes | memoryview]) -> None:
        """Send a request. An answer that is there before its end is enough."""
        assert self._transport is not None
        assert self._answer is not None
        if not body or (len(body) == 1 and len(body[0]) < _PIECE):
            self._transport.write(head + b"".join(map(bytes, body)))
        else:
            self._transport.write(head)
            for piece in body:
                view = memoryview(piece)
                for start in range(0, len(view), _PIECE):
                    if self._lost is not None or self._answer.has_head:
                        return
                    self._transport.write(view[start : start + _PIECE])
                    await self._writable.wait()
                    await asyncio.sleep(0)
        self.flushed = True

    def hold(self) -> None:
        """Read no more for now."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def leave(self) -> None:
        """Keep the connection where its answer is complete; close it otherwise."""
        answer, self._answer = self._answer, None
        if answer is not None and answer.may_rest and self.flushed and self._lost is None:
            self.go_on()  # the last reader may have held it
            self._resting = asyncio.get_running_loop().call_later(_IDLE_S, self.abort)
            self._client.rest(self)
        else:
            self.abort()

    def rests(self) -> bool:
        """Return whether it can be used again."""
        return self._lost is None and self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()
